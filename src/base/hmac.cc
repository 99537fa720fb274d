#include "src/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <span>

#include "src/base/check.h"

namespace trainyard {
namespace {

std::string to_hex(std::span<const unsigned char> bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex += kHex[byte >> 4];
    hex += kHex[byte & 15];
  }
  return hex;
}

}  // namespace

std::string hmac_sha256_hex(std::string_view key, std::string_view text) {
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  TRAINYARD_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                       digest.data(), &size) != nullptr &&
                      size == digest.size(),
                  "libcrypto offers no HMAC-SHA256");
  return to_hex(digest);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_hex(size_t bytes) {
  std::array<unsigned char, 64> random{};
  TRAINYARD_CHECK(
      bytes <= random.size() && ::getrandom(random.data(), bytes, 0) == static_cast<ssize_t>(bytes),
      "getrandom failed");
  return to_hex(std::span(random.data(), bytes));
}

}  // namespace trainyard
