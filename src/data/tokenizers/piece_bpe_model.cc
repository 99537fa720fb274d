#include "src/data/tokenizers/piece_bpe_model.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "src/base/text.h"
#include "src/data/tokenizers/bpe_model.h"

namespace trainyard {

PieceBpeModel::PieceBpeModel(std::shared_ptr<const TokenNames> names, std::vector<double> scores,
                             PieceBpeSettings settings)
    : names_(std::move(names)), scores_(std::move(scores)), settings_(std::move(settings)) {
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = names_->find(name_of_byte_token(static_cast<uint8_t>(byte)));
  }
  for (int32_t id = 0; id < names_->size(); ++id) {
    const auto at = static_cast<size_t>(id);
    if (!settings_.matched[at]) continue;
    const std::string_view name = names_->name(id);
    if (settings_.user_defined[at]) user_trie_.add(name, id);
    adjacent_.add(name);
  }
}

int32_t PieceBpeModel::find_piece(std::string_view text) const {
  const int32_t id = names_->find(text);
  return id >= 0 && settings_.matched[static_cast<size_t>(id)] ? id : -1;
}

void PieceBpeModel::encode(std::string_view piece, PieceTokens& out) const {
  if (piece.empty()) return;
  const auto encode_until = [&](size_t begin, size_t end) {
    const std::string_view stretch = piece.substr(begin, end - begin);
    const size_t first = out.ids.size();
    const bool after_unknown = first > 0 && out.ids.back() == settings_.unknown;
    if (const PieceTokens* known = stretches_.find(stretch)) {
      for (size_t i = 0; i < known->ids.size(); ++i) {
        // Successive unknown characters are one token.
        if (i == 0 && after_unknown && known->ids[0] == settings_.unknown) continue;
        out.add(known->ids[i], begin + known->begins[i]);
      }
      return;
    }
    PieceTokens tokens;
    encode_stretch(piece, begin, end, tokens);
    stretches_.store(stretch, tokens, 0, begin);
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      if (i == 0 && after_unknown && tokens.ids[0] == settings_.unknown) continue;
      out.add(tokens.ids[i], tokens.begins[i]);
    }
  };
  adjacent_.visit_stretches(piece, encode_until);
}

/// Joins the segments of a stretch.
class PieceBpeModel::Joiner {
 public:
  Joiner(const PieceBpeModel& model, std::string_view text, std::vector<Segment>& segments)
      : model_(model), text_(text), segments_(segments) {}

  void run() {
    for (int32_t i = 1; i < static_cast<int32_t>(segments_.size()); ++i) propose(i - 1, i);
    while (!queue_.empty()) {
      const Join join = queue_.top();
      queue_.pop();
      Segment& left = at(join.left);
      Segment& right = at(join.right);
      if (left.end == 0 || right.end == 0 || left.begin != join.begin || right.end != join.end ||
          left.after != join.right) {
        continue;  // outdated: one of the segments has been joined to another since
      }
      left.end = join.end;
      left.after = right.after;
      if (right.after >= 0) at(right.after).before = join.left;
      right.end = 0;
      propose(left.before, join.left);
      propose(join.left, left.after);
    }
  }

 private:
  struct Join {
    double score;
    int32_t left, right;
    size_t begin, end;
  };
  struct Worse {
    bool operator()(const Join& a, const Join& b) const {
      return a.score != b.score ? a.score < b.score : a.left > b.left;
    }
  };
  Segment& at(int32_t i) { return segments_[static_cast<size_t>(i)]; }
  void propose(int32_t left, int32_t right) {
    if (left < 0 || right < 0 || at(left).fixed || at(right).fixed) return;
    const size_t begin = at(left).begin;
    const size_t end = at(right).end;
    const int32_t id = model_.find_piece(text_.substr(begin, end - begin));
    if (id >= 0) queue_.push({model_.scores_[static_cast<size_t>(id)], left, right, begin, end});
  }

  const PieceBpeModel& model_;
  std::string_view text_;
  std::vector<Segment>& segments_;
  std::priority_queue<Join, std::vector<Join>, Worse> queue_;
};

void PieceBpeModel::encode_stretch(std::string_view piece, size_t begin, size_t end,
                                   PieceTokens& out) const {
  std::vector<Segment> segments;
  for (size_t at = begin; at < end;) {
    size_t next = at;
    user_trie_.visit_prefixes(piece.substr(at, end - at),
                              [&](int32_t, size_t bytes) { next = at + bytes; });
    const bool fixed = next > at;
    if (!fixed) {
      std::string_view rest = piece.substr(at);
      (void)take_code_point(rest);
      next = piece.size() - rest.size();
    }
    const auto i = static_cast<int32_t>(segments.size());
    segments.push_back({i - 1, next < end ? i + 1 : -1, at, next, fixed});
    at = next;
  }
  Joiner(*this, piece, segments).run();
  for (int32_t i = 0; i >= 0; i = segments[static_cast<size_t>(i)].after) {
    const Segment& segment = segments[static_cast<size_t>(i)];
    add_token(piece.substr(segment.begin, segment.end - segment.begin), segment.begin, out);
  }
}

void PieceBpeModel::add_token(std::string_view text, size_t begin, PieceTokens& out) const {
  const int32_t id = find_piece(text);
  if (id >= 0) return out.add(id, begin);
  const bool bytes = settings_.byte_fallback && std::ranges::all_of(text, [&](char byte) {
                       return byte_tokens_[static_cast<uint8_t>(byte)] >= 0;
                     });
  if (bytes) {
    for (size_t i = 0; i < text.size(); ++i) {
      out.add(byte_tokens_[static_cast<uint8_t>(text[i])], begin + i);
    }
  } else if (out.ids.empty() || out.ids.back() != settings_.unknown) {
    out.add(settings_.unknown, begin);
  }
}

}  // namespace trainyard
