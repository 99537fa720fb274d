// server/config/token.h: the bearer token of TCP clients.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

class Token {
 public:
  /// Reads a token of 16 to 512 printable characters. The file must be readable only by its owner.
  /// Refusals: TOKEN_FILE_INVALID.
  static Result<Token> load(const std::filesystem::path& path);
  /// In constant time: digests are compared, so that neither length nor content can be timed.
  bool matches(std::string_view candidate) const;

 private:
  explicit Token(std::string digest) : digest_(std::move(digest)) {}
  std::string digest_;
};

}  // namespace trainyard::server
