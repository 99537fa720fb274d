#include "server/config/token.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/files.h"
#include "src/base/sha256.h"

namespace trainyard::server {

Result<Token> Token::load(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument, "TOKEN_FILE_INVALID",
                      "token_file " + path.string() + ": " + why);
  };
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return refuse(std::strerror(errno));
  if ((st.st_mode & 077) != 0) {
    return refuse("other users can read it; run chmod 600 " + path.string());
  }
  Result<std::string> text = read_file(path, 4096);
  if (!text.ok()) return refuse(text.error().message);
  std::string token = *text;
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (token.size() < 16 || token.size() > 512 || !printable) {
    return refuse("expected one line of 16 to 512 printable characters without spaces");
  }
  return Token(sha256_hex(token));
}

bool Token::matches(std::string_view candidate) const {
  const std::string digest = sha256_hex(candidate);
  unsigned char difference = 0;
  for (size_t i = 0; i < digest_.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (digest[i] ^ digest_[i]));
  }
  return difference == 0;
}

}  // namespace trainyard::server
