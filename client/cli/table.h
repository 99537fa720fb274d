// client/cli/table.h: aligned columns for people.
#pragma once

#include <string>
#include <vector>

#include "client/cli/terminal.h"

namespace trainyard::cli {

struct Cell {
  Cell(std::string t = "", Style s = Style::kPlain)
      : text(std::move(t)), style(s) {}  // NOLINT: implicit
  Cell(const char* t) : text(t) {}       // NOLINT
  std::string text;                      // from any source: escaped when rendered
  Style style;
};

struct Column {
  std::string title;
  bool right = false;  // numbers
  // Where the table is wider than its terminal:
  bool shortens = false;  // sentences: cut at their end, and without any the column is left out
  int shortest = 12;      // of a sentence
  bool is_name = false;   // cut in the middle, once no sentence can be cut further
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  /// A header line and one line per row, two spaces between columns, no trailing spaces.
  std::string render(bool colour) const;
  /// The same for `out`: as wide as it has to be in a file or pipe; on a terminal, columns that
  /// shorten make it as wide as that, if they can.
  std::string render(const Terminal& out) const;
  /// For a terminal of this many columns; 0: without a bound.
  std::string render(bool colour, int width, bool utf8 = false) const;
  /// Columns that render(width) takes at least.
  int least_width() const;

 private:
  /// What fits, as far as it can; kHidden for a column that is left out.
  std::vector<int> column_widths(int width) const;
  std::vector<int> natural_widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// "name:  value" lines with aligned values; rows with empty values are left out. Values that are
/// longer than lines of `width` columns go on below; 0: without a bound.
std::string render_fields(const std::vector<std::pair<std::string, Cell>>& fields, bool colour,
                          int width = 0);

/// Spreadsheets execute cells that begin like this: such fields get a leading apostrophe.
std::string csv_field(std::string_view text);

}  // namespace trainyard::cli
