// src/base/hmac.h: keyed digests (HMAC-SHA256, RFC 2104, by OpenSSL's libcrypto), and generation
// and comparison of secrets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard {

/// Returns 64 lower-case hexadecimal digits. `key` is the raw key, not an encoding of it.
std::string hmac_sha256_hex(std::string_view key, std::string_view text);

/// Returns whether `a` equals `b`, in a time that does not depend on where they first differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// Returns `bytes` random bytes (at most 64) of the system's random source, as hexadecimal digits.
std::string random_hex(size_t bytes);

}  // namespace trainyard
