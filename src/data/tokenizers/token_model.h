// src/data/tokenizers/token_model.h: what all models of tokens have in common: a vocabulary, and a
// rule that cuts a piece of text into its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// The tokens of a piece of text, and where in the piece each begins.
struct PieceTokens {
  std::vector<int32_t> ids;
  std::vector<uint32_t> begins;

  void add(int32_t id, size_t begin) {
    ids.push_back(id);
    begins.push_back(static_cast<uint32_t>(begin));
  }
};

/// The names of tokens, by id. Ids without a name are possible.
class TokenNames {
 public:
  static constexpr int64_t kTokensMax = int64_t{1} << 20;

  /// Refuses a name or an id that is already in use, and an id beyond kTokensMax. `field` begins
  /// the message.
  Status add(std::string name, int64_t id, const std::string& field);
  int32_t find(std::string_view name) const;  // -1: none
  std::string_view name(int32_t id) const;    // empty: none
  bool contains(int32_t id) const;
  int64_t size() const { return std::ssize(names_); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::vector<std::string> names_;
  std::vector<bool> known_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

/// Const and thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of a piece.
  virtual void encode(std::string_view piece, PieceTokens& out) const = 0;
  /// Whether the model takes the bytes of a text instead of the letters by which a tokenizer of
  /// bytes writes them (byte_letters.h).
  virtual bool takes_bytes() const { return false; }
};

/// Returns the error for a field of a tokenizer's file.
inline Error tokenizer_error(const std::string& field, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "TOKENIZER_INVALID", field + ": " + what);
}

}  // namespace trainyard
