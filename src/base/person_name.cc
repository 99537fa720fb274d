#include "src/base/person_name.h"

#include <algorithm>

namespace trainyard {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_person_name(std::string_view text) {
  static constexpr std::string_view kSigns = "._-@:";
  return !text.empty() && text.size() <= kPersonNameCharsMax && is_letter_or_digit(text.front()) &&
         std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || kSigns.find(c) != std::string_view::npos;
         });
}

std::string person_name_rule() {
  return "1 to 63 letters, digits and . _ - @ : with a letter or digit first";
}

}  // namespace trainyard
