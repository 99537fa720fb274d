// src/base/resource_id.h: the rule for IDs of jobs, arrays, datasets and models, the last parts of
// their names, and the project of names that name none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard {

/// The project of names and requests that name none. It always exists.
inline constexpr const char* kDefaultProject = "default";
inline constexpr size_t kResourceIdCharsMax = 63;
inline constexpr size_t kArrayIdCharsMax = 57;  // a member's job ID is up to 5 characters longer

/// Returns whether the text has only a-z, 0-9 and dash, begins with a letter and does not end with
/// a dash.
bool is_resource_id(std::string_view text, size_t chars_max = kResourceIdCharsMax);
/// Returns the ID that is most like the text: "my-shop-2" for "My Shop_2". Empty if the text does
/// not begin with an ASCII letter.
std::string resource_id_of(std::string_view text, size_t chars_max = kResourceIdCharsMax);
/// Says the rule, for messages: "1 to 63 characters of a-z, ...".
std::string resource_id_rule(size_t chars_max = kResourceIdCharsMax);

}  // namespace trainyard
