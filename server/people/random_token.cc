#include "server/people/random_token.h"

#include "server/store/random_id.h"
#include "src/base/token_text.h"

namespace trainyard::server {

std::string random_token_text() {
  constexpr size_t kDigits = kTokenAlphabet.size();
  // Larger bytes are dropped, so that all characters are equally likely.
  constexpr unsigned kBytesUsed = 256 / kDigits * kDigits;
  std::string body;
  while (body.size() < kTokenBodyChars) {
    for (const char c : random_bytes(kTokenBodyChars - body.size())) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < kBytesUsed) body += kTokenAlphabet[byte % kDigits];
    }
  }
  return token_text(body);
}

}  // namespace trainyard::server
