#include "server/config/token.h"

#include <algorithm>
#include <sstream>

#include "server/config/private_files.h"
#include "src/base/files.h"
#include "src/base/person_name.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

constexpr int64_t kFileBytesMax = 256 << 10;

bool is_token(std::string_view text) {
  return text.size() >= 16 && text.size() <= 512 &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
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
  std::vector<Line> found;
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
    if (parts.size() == 2 && !is_person_name(parts.front())) {
      return refuse(at + "the name is not valid, expected " + person_name_rule());
    }
    std::string digest = sha256_hex(parts.back());
    if (std::ranges::find(found, digest, &Line::digest) != found.end()) {
      return refuse(at + "an earlier line has the same token");
    }
    if (found.size() == kTokensMax) {
      return refuse("more than " + std::to_string(kTokensMax) + " tokens");
    }
    const bool named = parts.size() == 2;
    found.push_back({named ? parts.front() : kUnnamedToken, std::move(digest), named});
  }
  if (found.empty()) return refuse("the file has no token");
  return Tokens(std::move(found));
}

std::string Tokens::warning() const {
  if (std::ranges::all_of(lines_, &Line::named)) return "";
  return "token_file has a token without a name, whose bearers are admins and cannot be told "
         "apart; "
         "give each person a token ('trainyard token create') and remove that line";
}

}  // namespace trainyard::server
