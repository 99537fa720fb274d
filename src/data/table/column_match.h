// src/data/table/column_match.h: finds the columns that a model learned from in the header of other
// rows, where names may be written in another case and in another order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

inline constexpr size_t kNoColumn = SIZE_MAX;

/// Returns for each of `names` the index in `known` of the same column, or kNoColumn. Equal names
/// match first. Of the others, two match if they differ only in the case of ASCII letters, in
/// blanks around them or in the form of composed characters (NFC), and if no further name does.
std::vector<size_t> match_columns(std::span<const std::string> names,
                                  std::span<const std::string> known);

/// Returns a name without the differences that match_columns() disregards.
std::string folded_name(std::string_view name);

/// Returns "'a', 'b' and 3 more": names in quotes, of which at most 16 are listed.
std::string list_columns(std::span<const std::string> names);

/// Returns the refusal of rows without the columns `missing`. `needed` says what needs them: "which
/// the model learned from". `others` are columns of the rows that match none; a similar one is
/// suggested.
Error missing_columns(const std::string& what, const std::vector<std::string>& missing,
                      std::string_view needed, const std::vector<std::string>& others);

}  // namespace trainyard
