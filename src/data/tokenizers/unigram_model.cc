#include "src/data/tokenizers/unigram_model.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/data/tokenizers/bpe_model.h"

namespace trainyard {
namespace {

// The amount by which the score of an unknown character is below the lowest one, as in
// SentencePiece.
constexpr double kUnknownBelow = 10;
constexpr int32_t kNone = -2;  // no cut ends at a place

}  // namespace

void TokenTrie::insert(Edge edge) {
  size_t place = place_of(edge.key);
  while (edges_[place].node != 0) place = (place + 1) & (edges_.size() - 1);
  edges_[place] = edge;
}

void TokenTrie::add(std::string_view name, int32_t id) {
  uint32_t node = 0;
  for (const char c : name) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t next = find(node, byte);
    if (next == 0) {
      if (2 * ids_.size() >= edges_.size()) {
        std::vector<Edge> old(2 * edges_.size());
        old.swap(edges_);
        for (const Edge& edge : old) {
          if (edge.node != 0) insert(edge);
        }
      }
      next = static_cast<uint32_t>(ids_.size());
      ids_.push_back(-1);
      insert({key_of(node, byte), next});
    }
    node = next;
  }
  ids_[node] = id;
}

UnigramModel::UnigramModel(std::shared_ptr<const TokenNames> names, std::vector<double> scores,
                           UnigramSettings settings, const std::vector<bool>& matched)
    : names_(std::move(names)), scores_(std::move(scores)), settings_(std::move(settings)) {
  bool any = false;
  for (int32_t id = 0; id < names_->size(); ++id) {
    const auto at = static_cast<size_t>(id);
    if (names_->name(id).empty() || (!matched.empty() && !matched[at])) continue;
    trie_.add(names_->name(id), id);
    lowest_ = any ? std::min(lowest_, scores_[at]) : scores_[at];
    highest_ = any ? std::max(highest_, scores_[at]) : scores_[at];
    any = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = names_->find(name_of_byte_token(static_cast<uint8_t>(byte)));
  }
}

double UnigramModel::score_of(int32_t id, size_t bytes) const {
  const auto at = static_cast<size_t>(id);
  if (at < settings_.user_defined.size() && settings_.user_defined[at]) {
    return static_cast<double>(static_cast<float>(bytes) * static_cast<float>(highest_)) - 0.1;
  }
  return scores_[at];
}

void UnigramModel::encode(std::string_view piece, PieceTokens& out) const {
  if (settings_.single_precision) {
    cut<float>(piece, out);
  } else {
    cut<double>(piece, out);
  }
}

template <typename Sum>
void UnigramModel::cut(std::string_view piece, PieceTokens& out) const {
  struct Best {  // of the cuts that end at a place
    Sum score = 0;
    int32_t id = kNone;  // of the last token
    size_t begin = 0;    // of the last token
  };
  std::vector<Best> best(piece.size() + 1);
  const auto unknown_score = static_cast<Sum>(lowest_ - kUnknownBelow);
  for (size_t begin = 0; begin < piece.size();) {
    const Sum so_far = best[begin].score;
    std::string_view rest = piece.substr(begin);
    (void)take_code_point(rest);
    const size_t character = piece.size() - begin - rest.size();
    bool single = false;  // whether the next character alone is a token
    const auto offer = [&](size_t end, int32_t id, Sum score) {
      if (best[end].id != kNone && !(score > best[end].score)) return;
      best[end] = {score, id, begin};
    };
    trie_.visit_prefixes(piece.substr(begin), [&](int32_t id, size_t bytes) {
      single = single || bytes == character;
      offer(begin + bytes, id, static_cast<Sum>(score_of(id, bytes)) + so_far);
    });
    if (!single) offer(begin + character, -1, unknown_score + so_far);
    begin += character;
  }
  std::vector<const Best*> cuts;
  for (size_t end = piece.size(); end > 0; end = best[end].begin) cuts.push_back(&best[end]);
  // Successive unknown characters are one token.
  for (auto it = cuts.rbegin(); it != cuts.rend();) {
    if ((*it)->id >= 0 && (*it)->id != settings_.unknown) {
      out.add((*it)->id, (*it)->begin);
      ++it;
      continue;
    }
    const size_t begin = (*it)->begin;
    while (it != cuts.rend() && ((*it)->id < 0 || (*it)->id == settings_.unknown)) ++it;
    const size_t end = it == cuts.rend() ? piece.size() : (*it)->begin;
    add_unknown(piece.substr(begin, end - begin), begin, out);
  }
}

void UnigramModel::add_unknown(std::string_view text, size_t begin, PieceTokens& out) const {
  if (!settings_.single_precision) {  // tokenizers looks for the whole text once more
    if (const int32_t id = names_->find(text); id >= 0) return out.add(id, begin);
  }
  const bool bytes = settings_.byte_fallback && std::ranges::all_of(text, [&](char byte) {
                       return byte_tokens_[static_cast<uint8_t>(byte)] >= 0;
                     });
  if (bytes) {
    for (size_t i = 0; i < text.size(); ++i) {
      out.add(byte_tokens_[static_cast<uint8_t>(text[i])], begin + i);
    }
  } else if (settings_.unknown >= 0) {
    out.add(settings_.unknown, begin);
  }
}

}  // namespace trainyard
