#include "server/store/random_id.h"

#include <sys/random.h>

#include <cerrno>
#include <string_view>

#include "src/base/check.h"

namespace trainyard::server {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t n = ::getrandom(bytes.data() + filled, count - filled, 0);
    TRAINYARD_CHECK(n > 0 || errno == EINTR, "getrandom failed");
    if (n > 0) filled += static_cast<size_t>(n);
  }
  return bytes;
}

std::string random_uid(int64_t now_us) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  const auto ms = static_cast<uint64_t>(now_us / 1000);
  for (int shift = 44; shift >= 0; shift -= 4) text += kDigits[(ms >> shift) & 15];
  for (const char c : random_bytes(10)) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

namespace {

std::string random_named_id(char first, int64_t now_us) {
  static constexpr std::string_view kLetters = "23456789bcdfghjkmnpqrstvwxz";
  static constexpr int kTimeLetters = 6;  // encode seconds, which wrap around after 12 years
  static constexpr int kRandomLetters = 6;
  std::string text(2 + kTimeLetters, '-');
  text[0] = first;
  auto seconds = static_cast<uint64_t>(now_us / 1'000'000);
  for (size_t i = text.size() - 1; i >= 2; --i, seconds /= kLetters.size())
    text[i] = kLetters[seconds % kLetters.size()];
  for (const char c : random_bytes(kRandomLetters))
    text += kLetters[static_cast<unsigned char>(c) % kLetters.size()];
  return text;
}

}  // namespace

std::string random_job_id(int64_t now_us) { return random_named_id('j', now_us); }
std::string random_array_id(int64_t now_us) { return random_named_id('a', now_us); }

}  // namespace trainyard::server
