#include "src/data/tokenizers/bpe_model.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "src/base/text.h"

namespace trainyard {

BpeMerges::BpeMerges(const std::vector<BpeMerge>& merges)
    : places_(std::bit_ceil(2 * merges.size() + 2), BpeMerge{-1, -1, 0, 0}),
      mask_(places_.size() - 1) {
  for (const BpeMerge& merge : merges) {
    size_t place = place_of(merge.left, merge.right);
    while (places_[place].left >= 0 &&
           (places_[place].left != merge.left || places_[place].right != merge.right)) {
      place = (place + 1) & mask_;
    }
    places_[place] = merge;
  }
}

std::string name_of_byte_token(uint8_t byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

BpeModel::BpeModel(std::shared_ptr<const TokenNames> names, const std::vector<BpeMerge>& merges,
                   BpeSettings settings, std::vector<std::optional<std::string>> bytes)
    : names_(std::move(names)),
      merges_(merges),
      settings_(std::move(settings)),
      takes_bytes_(!bytes.empty()) {
  byte_tokens_.fill(-1);
  if (takes_bytes_) {
    for (size_t id = 0; id < bytes.size(); ++id) {
      if (!bytes[id]) continue;
      if (bytes[id]->size() == 1) {
        byte_tokens_[static_cast<uint8_t>((*bytes[id])[0])] = static_cast<int32_t>(id);
      }
      if (settings_.whole_words) by_bytes_.emplace(*bytes[id], static_cast<int32_t>(id));
    }
    return;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = names_->find(name_of_byte_token(static_cast<uint8_t>(byte)));
  }
  // An unknown token that absorbs its neighbors would cross the ends of stretches, and so would
  // merges of bytes.
  const bool all_known = settings_.byte_fallback && std::ranges::count(byte_tokens_, -1) == 0;
  const bool alone = !settings_.unknown || !settings_.fuse_unknown || all_known;
  const bool byte_merges = std::ranges::any_of(merges, [&](const BpeMerge& merge) {
    return std::ranges::count(byte_tokens_, merge.left) > 0 ||
           std::ranges::count(byte_tokens_, merge.right) > 0;
  });
  if (alone && !byte_merges && settings_.continuing_prefix.empty() &&
      settings_.end_suffix.empty()) {
    for (int32_t id = 0; id < names_->size(); ++id) adjacent_.add(names_->name(id));
  }
}

int32_t BpeModel::find_whole(std::string_view piece) const {
  if (!takes_bytes_) return names_->find(piece);
  const auto it = by_bytes_.find(piece);
  return it == by_bytes_.end() ? -1 : it->second;
}

void BpeModel::encode(std::string_view piece, PieceTokens& out) const {
  if (piece.empty()) return;
  if (settings_.whole_words) {
    const int32_t id = find_whole(piece);
    if (id >= 0) return out.add(id, 0);
  }
  if (!adjacent_.empty()) return encode_in_stretches(piece, out);
  std::vector<Symbol> symbols;
  if (takes_bytes_) {
    split_bytes(piece, symbols);
  } else {
    split_characters(piece, 0, symbols);
  }
  join(symbols);
  for (const Symbol& symbol : symbols) out.add(symbol.id, symbol.begin);
}

void BpeModel::encode_in_stretches(std::string_view piece, PieceTokens& out) const {
  std::vector<Symbol> symbols;
  const auto encode_stretch = [&](size_t begin, size_t end) {
    const std::string_view stretch = piece.substr(begin, end - begin);
    if (const PieceTokens* known = stretches_.find(stretch)) {
      for (size_t i = 0; i < known->ids.size(); ++i) {
        out.add(known->ids[i], begin + known->begins[i]);
      }
      return;
    }
    symbols.clear();
    split_characters(stretch, begin, symbols);
    join(symbols);
    const size_t first = out.ids.size();
    for (const Symbol& symbol : symbols) out.add(symbol.id, symbol.begin);
    stretches_.store(stretch, out, first, begin);
  };
  adjacent_.visit_stretches(piece, encode_stretch);
}

void BpeModel::split_bytes(std::string_view piece, std::vector<Symbol>& out) const {
  for (size_t i = 0; i < piece.size(); ++i) {
    int32_t id = byte_tokens_[static_cast<uint8_t>(piece[i])];
    if (id < 0) {
      if (!settings_.unknown) continue;
      id = *settings_.unknown;
      const bool again = !out.empty() && out.back().id == id &&
                         byte_tokens_[static_cast<uint8_t>(piece[i - 1])] < 0;
      if (settings_.fuse_unknown && again) continue;
    }
    out.push_back({id, static_cast<uint32_t>(i)});
  }
}

bool BpeModel::add_byte_tokens(std::string_view character, size_t begin,
                               std::vector<Symbol>& out) const {
  if (!settings_.byte_fallback) return false;
  for (const char byte : character) {
    if (byte_tokens_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : character) {
    out.push_back({byte_tokens_[static_cast<uint8_t>(byte)], static_cast<uint32_t>(begin)});
  }
  return true;
}

void BpeModel::split_characters(std::string_view piece, size_t base,
                                std::vector<Symbol>& out) const {
  // The unknown token is added once a known character follows, or at the end.
  int64_t unknown_begin = -1;
  const auto add_unknown = [&] {
    if (unknown_begin >= 0) {
      out.push_back({*settings_.unknown, static_cast<uint32_t>(unknown_begin)});
    }
    unknown_begin = -1;
  };
  std::string decorated;
  for (std::string_view rest = piece; !rest.empty();) {
    const size_t begin = piece.size() - rest.size();
    (void)take_code_point(rest);
    const size_t end = piece.size() - rest.size();
    std::string_view character = piece.substr(begin, end - begin);
    const bool prefixed = begin > 0 && !settings_.continuing_prefix.empty();
    const bool suffixed = rest.empty() && !settings_.end_suffix.empty();
    if (prefixed || suffixed) {
      decorated = prefixed ? settings_.continuing_prefix : std::string();
      decorated += character;
      if (suffixed) decorated += settings_.end_suffix;
      character = decorated;
    }
    const auto place = static_cast<uint32_t>(base + begin);
    if (const int32_t id = names_->find(character); id >= 0) {
      add_unknown();
      out.push_back({id, place});
    } else if (!add_byte_tokens(character, place, out) && settings_.unknown) {
      if (!settings_.fuse_unknown) add_unknown();
      if (unknown_begin < 0) unknown_begin = place;
    }
  }
  add_unknown();
}

void BpeModel::join(std::vector<Symbol>& symbols) const {
  constexpr size_t kFew = 24;
  if (symbols.size() <= kFew) {
    join_few(symbols);
  } else {
    join_many(symbols);
  }
}

/// Looks for the pair with the lowest rank again after each merge, which is fast for short words.
void BpeModel::join_few(std::vector<Symbol>& symbols) const {
  while (symbols.size() > 1) {
    const BpeMerge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const BpeMerge* merge = merges_.find(symbols[i].id, symbols[i + 1].id);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        place = i;
      }
    }
    if (best == nullptr) return;
    symbols[place].id = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

/// Keeps the pairs that can be joined in a queue.
void BpeModel::join_many(std::vector<Symbol>& symbols) const {
  struct Link {
    int32_t before, after;  // -1: none
  };
  struct Candidate {
    int32_t rank;
    uint32_t left;
    const BpeMerge* merge;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later);
  std::vector<Link> links(symbols.size());
  const auto propose = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const BpeMerge* merge =
        merges_.find(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id);
    if (merge != nullptr) queue.push({merge->rank, static_cast<uint32_t>(left), merge});
  };
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    links[static_cast<size_t>(i)] = {i - 1, i + 1 < count ? i + 1 : -1};
    propose(i - 1, i);
  }
  constexpr int32_t kJoined = -1;  // the id of a symbol that is a part of the one before it
  while (!queue.empty()) {
    const Candidate next = queue.top();
    queue.pop();
    Link& left = links[next.left];
    if (symbols[next.left].id != next.merge->left || left.after < 0 ||
        symbols[static_cast<size_t>(left.after)].id != next.merge->right) {
      continue;  // outdated: one of the symbols has been joined to another since
    }
    const auto right = static_cast<size_t>(left.after);
    symbols[next.left].id = next.merge->result;
    symbols[right].id = kJoined;
    left.after = links[right].after;
    if (left.after >= 0) {
      links[static_cast<size_t>(left.after)].before = static_cast<int32_t>(next.left);
    }
    propose(left.before, static_cast<int32_t>(next.left));
    propose(static_cast<int32_t>(next.left), left.after);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id == kJoined; });
}

std::vector<BpeMerge> merges_of_ranks(const std::vector<std::optional<std::string>>& bytes) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (bytes[id]) ids.emplace(*bytes[id], static_cast<int32_t>(id));
  }
  std::vector<BpeMerge> merges;
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!bytes[id]) continue;
    const std::string_view whole = *bytes[id];
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      const auto left = ids.find(whole.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(whole.substr(cut));
      if (right == ids.end()) continue;
      const auto result = static_cast<int32_t>(id);
      merges.push_back({left->second, right->second, result, result});
    }
  }
  return merges;
}

}  // namespace trainyard
