#include "src/data/tokenizers/word_piece_model.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard {
namespace {

bool begins_character(char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, begins_character);
}

}  // namespace

WordPieceModel::WordPieceModel(std::shared_ptr<const TokenNames> names, int32_t unknown,
                               std::string prefix, int64_t characters_max)
    : names_(std::move(names)),
      unknown_(unknown),
      prefix_(std::move(prefix)),
      characters_max_(characters_max) {
  for (int32_t id = 0; id < names_->size(); ++id) {
    longest_ = std::max(longest_, names_->name(id).size());
  }
}

void WordPieceModel::encode(std::string_view piece, PieceTokens& out) const {
  if (count_characters(piece) > characters_max_) return out.add(unknown_, 0);
  PieceTokens tokens;
  std::string name;
  for (size_t begin = 0; begin < piece.size();) {
    size_t end = std::min(piece.size(), begin + longest_);
    for (;; --end) {
      while (end > begin && end < piece.size() && !begins_character(piece[end])) --end;
      if (end <= begin) return out.add(unknown_, 0);
      name = begin == 0 ? std::string() : prefix_;
      name += piece.substr(begin, end - begin);
      if (const int32_t id = names_->find(name); id >= 0) {
        tokens.add(id, begin);
        break;
      }
    }
    begin = end;
  }
  for (size_t i = 0; i < tokens.ids.size(); ++i) out.add(tokens.ids[i], tokens.begins[i]);
}

WordLevelModel::WordLevelModel(std::shared_ptr<const TokenNames> names, int32_t unknown)
    : names_(std::move(names)), unknown_(unknown) {}

void WordLevelModel::encode(std::string_view piece, PieceTokens& out) const {
  const int32_t id = names_->find(piece);
  if (id >= 0 || unknown_ >= 0) out.add(id >= 0 ? id : unknown_, 0);
}

}  // namespace trainyard
