// src/data/table/category_form.h: which texts name the same category, or the same class.
//
//   texts          only equal ones
//   whole numbers  if all of a column's texts are whole numbers: "1", "1.0" and "1e0" are equal
//   booleans       if all are spellings of true and false: "True", "true", "T" and "1" are equal
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

enum class CategoryForm : uint8_t { kTexts, kWholeNumbers, kBooleans };

/// Pairs of words, one bit each: true and false, yes and no, on and off. 1 and 0 belong to all.
using BooleanWords = uint8_t;
inline constexpr BooleanWords kAllBooleanWords = 7;

/// Returns the pairs to which a text belongs, in any spelling: "T", "true", "TRUE", "1". Returns 0
/// if it belongs to none.
BooleanWords boolean_words(std::string_view text);

/// Returns whether the text means true; nullopt if it does not belong to the pairs.
std::optional<bool> boolean_value(std::string_view text, BooleanWords words);

/// Returns the pairs to which all the texts belong, of which at least one must be a word; else 0.
BooleanWords common_boolean_words(const std::vector<std::string>& texts);

/// Returns the form of a column with these names.
CategoryForm form_of(const std::vector<std::string>& names);

/// Returns for each spelling of true and false the name of its category: the spelling itself if
/// there is one for true and one for false at most, else the common words, such as "true".
std::vector<std::string> boolean_names(const std::vector<std::string>& spellings);

}  // namespace trainyard
