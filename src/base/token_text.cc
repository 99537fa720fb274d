#include "src/base/token_text.h"

#include <cstdint>

#include "src/base/crc32c.h"

namespace trainyard {

std::string token_text(std::string_view body) {
  std::string text = std::string(kTokenPrefix) + std::string(body);
  uint32_t rest = crc32c(std::string_view(text));
  std::string checksum(kTokenChecksumChars, kTokenAlphabet[0]);
  for (size_t i = checksum.size(); i-- > 0; rest /= kTokenAlphabet.size()) {
    checksum[i] = kTokenAlphabet[rest % kTokenAlphabet.size()];
  }
  return text + checksum;
}

bool is_token_text(std::string_view text) {
  if (text.size() != kTokenPrefix.size() + kTokenBodyChars + kTokenChecksumChars) return false;
  if (!text.starts_with(kTokenPrefix)) return false;
  const std::string_view body = text.substr(kTokenPrefix.size(), kTokenBodyChars);
  return body.find_first_not_of(kTokenAlphabet) == body.npos && token_text(body) == text;
}

}  // namespace trainyard
