// src/data/tokenizers/bpe_model.h: byte-pair encoding: a piece of text begins as single characters
// or bytes, and the pair of neighbors with the lowest rank is joined until no pair has one.
//
// Source: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units"
// (ACL 2016).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/data/tokenizers/adjacent_characters.h"
#include "src/data/tokenizers/token_model.h"
#include "src/data/tokenizers/word_cache.h"

namespace trainyard {

struct BpeMerge {
  int32_t left, right;
  int32_t rank;  // the lowest rank is joined first, of equal ranks the leftmost pair
  int32_t result;
};

/// A table from pairs of tokens to merges.
class BpeMerges {
 public:
  explicit BpeMerges(const std::vector<BpeMerge>& merges);
  /// Returns null if the pair is not joined.
  const BpeMerge* find(int32_t left, int32_t right) const {
    size_t place = place_of(left, right);
    for (;; place = (place + 1) & mask_) {
      const BpeMerge& merge = places_[place];
      if (merge.left == left && merge.right == right) return &merge;
      if (merge.left < 0) return nullptr;
    }
  }

 private:
  size_t place_of(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15U) >> 32) & mask_;
  }
  std::vector<BpeMerge> places_;  // left -1: empty
  size_t mask_;
};

struct BpeSettings {
  std::optional<int32_t> unknown;  // the token of a character without one; nullopt: none
  bool fuse_unknown = false;       // successive unknown characters are one token
  bool byte_fallback = false;      // a character without a token becomes its bytes, "<0x0A>"
  bool whole_words = false;        // a piece that is a token is not built from merges
  std::string continuing_prefix;   // of each character but the first
  std::string end_suffix;          // of the last character
};

class BpeModel final : public TokenModel {
 public:
  /// `bytes`: the bytes of each token by id, if pieces are bytes; empty if the names of the tokens
  /// are the text.
  BpeModel(std::shared_ptr<const TokenNames> names, const std::vector<BpeMerge>& merges,
           BpeSettings settings, std::vector<std::optional<std::string>> bytes);

  void encode(std::string_view piece, PieceTokens& out) const override;
  bool takes_bytes() const override { return takes_bytes_; }

 private:
  struct Symbol {
    int32_t id;
    uint32_t begin;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  int32_t find_whole(std::string_view piece) const;
  void split_bytes(std::string_view piece, std::vector<Symbol>& out) const;
  void split_characters(std::string_view piece, size_t base, std::vector<Symbol>& out) const;
  bool add_byte_tokens(std::string_view character, size_t begin, std::vector<Symbol>& out) const;
  void encode_in_stretches(std::string_view piece, PieceTokens& out) const;
  void join(std::vector<Symbol>& symbols) const;
  void join_few(std::vector<Symbol>& symbols) const;
  void join_many(std::vector<Symbol>& symbols) const;

  std::shared_ptr<const TokenNames> names_;
  BpeMerges merges_;
  BpeSettings settings_;
  bool takes_bytes_;
  std::array<int32_t, 256> byte_tokens_{};  // of bytes as pieces, or of "<0x00>" and following
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> by_bytes_;
  // Empty if texts cannot be encoded in stretches.
  AdjacentCharacters adjacent_;
  mutable WordCache stretches_;
};

/// Returns the merges of tokens that have ranks and no list of merges: every way to join two tokens
/// whose bytes together are a token. The rank is the id.
std::vector<BpeMerge> merges_of_ranks(const std::vector<std::optional<std::string>>& bytes);

/// "<0x0A>"
std::string name_of_byte_token(uint8_t byte);

}  // namespace trainyard
