// server/config/token.h: the bearer tokens of TCP clients.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

/// The name of who sends a token that the file gives none.
inline constexpr const char* kUnnamedToken = "token";
/// The name of who needs no token and has no other name.
inline constexpr const char* kAnonymous = "anonymous";

class Tokens {
 public:
  static constexpr size_t kTokensMax = 256;

  /// Reads a file that is readable only by its owner: a line for each token, of 16 to 512 printable
  /// characters, behind the name of who sends it and a blank, or alone. Empty lines and those that
  /// begin with # are left out. Refusals, which never show a token: TOKEN_FILE_INVALID.
  static Result<Tokens> load(const std::filesystem::path& path);
  /// Who sends this token; null if it is none of them. In constant time: digests are compared, so
  /// that neither length nor content can be timed.
  const std::string* find_name(std::string_view candidate) const;

 private:
  struct Token {
    std::string name;
    std::string digest;
  };
  explicit Tokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  std::vector<Token> tokens_;
};

}  // namespace trainyard::server
