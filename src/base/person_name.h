// src/base/person_name.h: the rule for names of people and services.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard {

inline constexpr size_t kPersonNameCharsMax = 63;

/// Returns whether the text has 1 to 63 of the characters A-Z, a-z, 0-9 and . _ - @ : and begins
/// with a letter or digit. Such a name is safe in a log, a terminal, a list and a header.
bool is_person_name(std::string_view text);
/// Says the rule, for messages.
std::string person_name_rule();

}  // namespace trainyard
