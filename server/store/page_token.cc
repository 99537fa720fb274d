#include "server/store/page_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <charconv>

#include "server/store/job_store.h"

namespace trainyard::server {
namespace {

constexpr int32_t kPageSizeDefault = 50;
constexpr size_t kMacBytes = 16;
constexpr size_t kCursorDigits = 16;

std::string hex(const unsigned char* bytes, size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

/// Returns the cursor with its signature.
std::string signed_cursor(std::string_view key, std::string_view query,
                          const std::string& cursor_text) {
  const std::string signed_text = std::string(query) + '\n' + cursor_text;
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  const void* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(signed_text.data()),
                          signed_text.size(), mac, &size);
  TRAINYARD_CHECK(done != nullptr && size >= kMacBytes, "HMAC-SHA256 failed");
  return cursor_text + hex(mac, kMacBytes);
}

Error token_invalid() {
  return field_error("PAGE_TOKEN_INVALID", "page_token",
                     "is not a next_page_token of this server for the same query; list again from "
                     "the first page");
}

}  // namespace

std::string make_page_token(std::string_view key, std::string_view query, int64_t cursor) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(cursor >> (56 - 8 * i));
  return signed_cursor(key, query, hex(bytes, 8));
}

Result<int64_t> read_page_token(std::string_view key, std::string_view query,
                                std::string_view token) {
  uint64_t cursor = 0;
  if (token.size() == kCursorDigits + 2 * kMacBytes) {
    const auto [end, error] =
        std::from_chars(token.data(), token.data() + kCursorDigits, cursor, 16);
    if (error == std::errc() && end == token.data() + kCursorDigits) {
      const std::string expected = make_page_token(key, query, static_cast<int64_t>(cursor));
      if (CRYPTO_memcmp(expected.data(), token.data(), token.size()) == 0)
        return static_cast<int64_t>(cursor);
    }
  }
  return token_invalid();
}

std::string make_named_page_token(std::string_view key, std::string_view query,
                                  std::string_view cursor) {
  return signed_cursor(key, query, std::string(cursor));
}

Result<std::string> read_named_page_token(std::string_view key, std::string_view query,
                                          std::string_view token) {
  if (token.size() <= 2 * kMacBytes) return token_invalid();
  std::string cursor(token.substr(0, token.size() - 2 * kMacBytes));
  const std::string expected = signed_cursor(key, query, cursor);
  if (CRYPTO_memcmp(expected.data(), token.data(), token.size()) != 0) return token_invalid();
  return cursor;
}

Result<int64_t> page_size_of(int32_t requested) {
  if (requested < 0)
    return field_error("PAGE_SIZE_NEGATIVE", "page_size",
                       std::to_string(requested) + " is out of range, expected 0.." +
                           std::to_string(kPageSizeMax));
  return requested == 0 ? kPageSizeDefault : std::min(requested, kPageSizeMax);
}

}  // namespace trainyard::server
