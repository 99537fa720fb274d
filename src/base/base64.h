// src/base/base64.h: base64 as in RFC 4648 section 4: standard alphabet, padding, no line breaks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

std::string base64_encode(std::string_view bytes);
/// Accepts exactly the texts that base64_encode() writes; nullopt for any other.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace trainyard
