// src/data/table/number_spelling.h: reads numbers that are written with a unit, a currency, a
// percent sign, or parentheses for negative ones: "12 kg", "$1200", "-5 %", "(1.2)", "1.2-".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/data/table/csv_cell.h"

namespace trainyard {

struct SpelledNumber {
  Cell cell;
  std::string unit = {};  // the text before and after the number: "kg", "$"; empty if there is none
};

/// Reads a cell that should be such a number. The unit does not change the value: "12 %" is 12.
SpelledNumber read_spelled(const CellReader& cells, std::string_view text);

/// How the numbers of a column are written.
struct NumberSpelling {
  NumberStyle style;
  std::string unit = {};  // of the numbers that have one
  bool spelled = false;   // a unit or parentheses occur: the column belongs into `numbers`
};

/// Returns how the numbers are written if all the different texts of a column are numbers in one
/// style and of one unit; nullopt if they are not, or may as well be names, such as "5A". In a
/// table whose fields are separated by semicolons, a comma between digits is a decimal comma; in
/// others "1,200" is more than a thousand, unless that contradicts another of the texts.
std::optional<NumberSpelling> find_spelling(std::span<const std::string_view> texts,
                                            char delimiter);

}  // namespace trainyard
