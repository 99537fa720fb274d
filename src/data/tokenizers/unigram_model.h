// src/data/tokenizers/unigram_model.h: cuts a piece of text into the tokens with the greatest sum
// of scores, which are log probabilities.
//
// Source: Kudo, "Subword Regularization" (ACL 2018).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/data/tokenizers/token_model.h"

namespace trainyard {

/// Finds the tokens that begin at a place of a text.
class TokenTrie {
 public:
  void add(std::string_view name, int32_t id);
  /// Calls visit(id, bytes) for each token with which `text` begins, the shortest one first.
  template <typename Visit>
  void visit_prefixes(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = find(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (ids_[node] >= 0) visit(ids_[node], i + 1);
    }
  }

 private:
  struct Edge {
    uint64_t key = 0;   // node and byte
    uint32_t node = 0;  // 0: the place is empty
  };
  static uint64_t key_of(uint32_t node, uint8_t byte) { return uint64_t{node} << 8 | byte; }
  size_t place_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15U) >> 32) & (edges_.size() - 1);
  }
  uint32_t find(uint32_t node, uint8_t byte) const {
    const uint64_t key = key_of(node, byte);
    for (size_t place = place_of(key);; place = (place + 1) & (edges_.size() - 1)) {
      if (edges_[place].node == 0) return 0;
      if (edges_[place].key == key) return edges_[place].node;
    }
  }
  void insert(Edge edge);

  std::vector<Edge> edges_ = std::vector<Edge>(1024);
  std::vector<int32_t> ids_ = {-1};  // of each node; -1: no token ends here. 0 is the root
};

struct UnigramSettings {
  int32_t unknown = -1;        // -1: none; a text that needs it then has no tokens there
  bool byte_fallback = false;  // a character without a token becomes its bytes, "<0x0A>"
  // SentencePiece adds scores in single precision; tokenizers adds them in double precision.
  bool single_precision = false;
  // SentencePiece: tokens that win over all others where they occur.
  std::vector<bool> user_defined;
};

class UnigramModel final : public TokenModel {
 public:
  /// `scores`: of each token by id. `matched`: whether the token is looked for in texts; empty: all
  /// are.
  UnigramModel(std::shared_ptr<const TokenNames> names, std::vector<double> scores,
               UnigramSettings settings, const std::vector<bool>& matched);

  void encode(std::string_view piece, PieceTokens& out) const override;

 private:
  template <typename Sum>
  void cut(std::string_view piece, PieceTokens& out) const;
  void add_unknown(std::string_view text, size_t begin, PieceTokens& out) const;
  double score_of(int32_t id, size_t bytes) const;

  std::shared_ptr<const TokenNames> names_;
  std::vector<double> scores_;
  UnigramSettings settings_;
  TokenTrie trie_;
  double lowest_ = 0, highest_ = 0;
  std::array<int32_t, 256> byte_tokens_{};
};

}  // namespace trainyard
