// src/base/base64.h: bytes in text, RFC 4648 section 4: the standard alphabet, padded, no breaks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

std::string base64_encode(std::string_view bytes);
/// Nothing for what base64_encode() would not write.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace trainyard
