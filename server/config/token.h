// server/config/token.h: the bearer tokens of TCP clients.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

/// The name of a client whose token has no name in the file.
inline constexpr const char* kUnnamedToken = "token";
/// The name of a client that needs no token and has no other name.
inline constexpr const char* kAnonymous = "anonymous";

class Tokens {
 public:
  static constexpr size_t kTokensMax = 256;

  /// Reads a file, which must be readable only by its owner. Each line is a token of 16 to 512
  /// printable characters, or a client's name, a blank and a token. Empty lines and lines that
  /// begin with # are ignored. Error: TOKEN_FILE_INVALID, whose message never contains a token.
  static Result<Tokens> load(const std::filesystem::path& path);
  /// Returns the name of the client that has this token; null if the token is unknown. Takes
  /// constant time by comparing digests, so that an attacker can measure neither length nor
  /// content.
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
