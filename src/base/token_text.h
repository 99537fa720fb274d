// src/base/token_text.h: the form of an access token's text.
//
// "ty_", 42 random letters and digits, and a checksum of 6. A mistyped or cut token is thereby
// recognised without a server, and programs that search for leaked secrets find one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard {

inline constexpr std::string_view kTokenPrefix = "ty_";
inline constexpr size_t kTokenBodyChars = 42;
inline constexpr size_t kTokenChecksumChars = 6;
/// The digits of base 62, of which body and checksum consist.
inline constexpr std::string_view kTokenAlphabet =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns the token's text: prefix, `body` and their checksum, which is their CRC-32C in base 62.
std::string token_text(std::string_view body);
/// Returns whether prefix, length, characters and checksum are right.
bool is_token_text(std::string_view text);

}  // namespace trainyard
