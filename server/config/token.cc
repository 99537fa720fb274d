#include "server/config/token.h"

#include <algorithm>
#include <sstream>

#include "server/config/private_files.h"
#include "src/base/files.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

constexpr int64_t kFileBytesMax = 256 << 10;
constexpr size_t kNameMax = 63;

bool is_token(std::string_view text) {
  return text.size() >= 16 && text.size() <= 512 &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

bool is_name(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '@';
  };
  return !text.empty() && text.size() <= kNameMax && text != kAnonymous &&
         std::ranges::all_of(text, is_plain);
}

}  // namespace

Result<Tokens> Tokens::load(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument, "TOKEN_FILE_INVALID",
                      "token_file " + path.string() + ": " + why);
  };
  if (const std::string why = why_not_private(path, /*group_may_read=*/false); !why.empty()) {
    return refuse(why);
  }
  Result<std::string> text = read_file(path, kFileBytesMax);
  if (!text.ok()) return refuse(text.error().message);
  std::vector<Token> tokens;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::vector<std::string> parts;
    for (std::string word; words >> word;) parts.push_back(std::move(word));
    if (parts.empty()) continue;
    const std::string at = "line " + std::to_string(number) + ": ";
    if (parts.size() > 2 || !is_token(parts.back())) {
      return refuse(
          at +
          "expected a token of 16 to 512 printable characters, alone or after a name and a space");
    }
    if (parts.size() == 2 && !is_name(parts.front())) {
      return refuse(at +
                    "the name is not valid, expected 1 to 63 letters, digits and . _ - @, and not "
                    "\"anonymous\"");
    }
    std::string digest = sha256_hex(parts.back());
    if (std::ranges::find(tokens, digest, &Token::digest) != tokens.end()) {
      return refuse(at + "an earlier line has the same token");
    }
    if (tokens.size() == kTokensMax) {
      return refuse("more than " + std::to_string(kTokensMax) + " tokens");
    }
    tokens.push_back({parts.size() == 2 ? parts.front() : kUnnamedToken, std::move(digest)});
  }
  if (tokens.empty()) return refuse("the file has no token");
  return Tokens(std::move(tokens));
}

const std::string* Tokens::find_name(std::string_view candidate) const {
  const std::string digest = sha256_hex(candidate);
  const std::string* name = nullptr;
  // Compares all tokens, so that the time does not depend on the match.
  for (const Token& token : tokens_) {
    unsigned char difference = 0;
    for (size_t i = 0; i < digest.size(); ++i) {
      difference = static_cast<unsigned char>(difference | (digest[i] ^ token.digest[i]));
    }
    if (difference == 0) name = &token.name;
  }
  return name;
}

}  // namespace trainyard::server
