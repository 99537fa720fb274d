// client/init/target_words.h: the words in names of columns by which init recognizes the column to
// predict. Each list was made from what people commonly predict and what they predict it from, not
// from single tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::init {

enum class TargetWord : uint8_t {
  kTarget,       // the whole name says that the column is the target: "label", "SalePrice"
  kOutcome,      // the whole name is that of a result: "y", "yield", "vote", "died"
  kOutcomeLast,  // the last word of the name is one of those: "brand_choice"
  kResult,       // a word of the name is one for a result: "late_payments", "infection_rate"
  kInput,        // a word of the name is one for what is known before: "age", "treatment", "region"
  kNone,
};

/// Returns the name in lower case without marks: "saleprice" for "Sale Price" and "sale_price".
std::string letters_of_name(std::string_view name);

/// Returns what the name suggests.
TargetWord find_target_word(std::string_view name);

}  // namespace trainyard::init
