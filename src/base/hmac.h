// src/base/hmac.h: keyed digests (HMAC-SHA256, RFC 2104) by OpenSSL's libcrypto, and how secrets
// are drawn and compared.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard {

/// 64 lower-case hexadecimal digits. The key's bytes are used as they are.
std::string hmac_sha256_hex(std::string_view key, std::string_view text);

/// Whether they are equal, in a time that does not depend on where they first differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// `bytes` from the system's random source, as hexadecimal digits.
std::string random_hex(size_t bytes);

}  // namespace trainyard
