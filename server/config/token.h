// server/config/token.h: the tokens of `token_file`, with which people call over TCP before the
// server has made tokens of its own (server/people).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

/// The person of a token that has no name in the file: an admin.
inline constexpr const char* kUnnamedToken = "token";

class Tokens {
 public:
  static constexpr size_t kTokensMax = 256;

  struct Line {
    std::string person;  // kUnnamedToken for a line without a name
    std::string digest;  // SHA-256 of the token
    bool named = false;
  };

  /// Reads a file, which must be readable only by its owner. Each line is a token of 16 to 512
  /// printable characters, or a person's name, a blank and a token. Empty lines and lines that
  /// begin with # are ignored. Error: TOKEN_FILE_INVALID, whose message never contains a token.
  static Result<Tokens> load(const std::filesystem::path& path);

  const std::vector<Line>& lines() const { return lines_; }
  /// Returns the warning that the file has a token without a name; empty if it has none.
  std::string warning() const;

 private:
  explicit Tokens(std::vector<Line> lines) : lines_(std::move(lines)) {}
  std::vector<Line> lines_;
};

}  // namespace trainyard::server
