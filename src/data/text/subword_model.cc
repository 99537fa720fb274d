#include "src/data/text/subword_model.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "src/base/text.h"
#include "src/base/wire_reader.h"
#include "src/data/limits.h"

namespace trainyard {
namespace {

constexpr WireFormat kModelWire{"TOKENIZER_INVALID", "not a valid tokenizer model"};
constexpr char32_t kBlankCodePoint = 0x2581;
constexpr std::string_view kBlank = "\xe2\x96\x81";
// The amount by which an unknown character's log probability is below that of the least likely
// piece, as in SentencePiece.
constexpr float kUnknownPenalty = 10;

enum PieceType : int64_t { kNormal = 1, kUnknown = 2, kByteType = 6 };

Error invalid(const std::string& what) { return invalid_wire(kModelWire, what); }

std::string name_of_byte(int byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

struct PieceMessage {
  std::string text;
  float score = 0;
  int64_t type = kNormal;
};

template <typename T>
Status store(Result<T> value, T& into) {
  if (!value.ok()) return std::move(value).error();
  into = *std::move(value);
  return {};
}

Result<PieceMessage> read_piece(const WireField& field) {
  PieceMessage piece;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 1) return store(text_of(f), piece.text);
    if (f.number == 2) return store(float_of(f), piece.score);
    if (f.number == 3) return store(int_of(f), piece.type);
    return {};
  });
  if (!s.ok()) return std::move(s).error();
  return piece;
}

/// The settings that influence how text is encoded and decoded. The defaults are the library's.
struct Settings {
  int64_t model_type = 1, byte_fallback = 0, unknown_id = 0, blank_is_suffix = 0;
  int64_t add_blank = 1, drop_blanks = 1, escape_blanks = 1;
  bool rewrites = false;
};

Status read_trainer(const WireField& field, Settings& settings) {
  return for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 3) return store(int_of(f), settings.model_type);
    if (f.number == 24) return store(int_of(f), settings.blank_is_suffix);
    if (f.number == 35) return store(int_of(f), settings.byte_fallback);
    if (f.number == 40) return store(int_of(f), settings.unknown_id);
    return {};
  });
}

Status read_normalizer(const WireField& field, Settings& settings) {
  return for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 2) settings.rewrites = settings.rewrites || !f.bytes.empty();
    if (f.number == 3) return store(int_of(f), settings.add_blank);
    if (f.number == 4) return store(int_of(f), settings.drop_blanks);
    if (f.number == 5) return store(int_of(f), settings.escape_blanks);
    return {};
  });
}

Status read_denormalizer(const WireField& field, Settings& settings) {
  return for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 2) settings.rewrites = settings.rewrites || !f.bytes.empty();
    return {};
  });
}

Status check_settings(const Settings& s, bool unigram) {
  if (s.model_type != (unigram ? 1 : 2)) return invalid("it is of a different kind");
  if (s.byte_fallback == 0 || s.unknown_id != 0 || s.blank_is_suffix != 0 || s.add_blank != 0 ||
      s.drop_blanks != 0 || s.escape_blanks == 0 || s.rewrites) {
    return invalid("it does not reproduce text exactly");
  }
  return {};
}

Status add_piece(PieceMessage piece, SubwordModel& model, std::unordered_set<std::string>& seen) {
  const auto id = static_cast<int32_t>(model.pieces.size());
  const auto refuse = [&](const char* what) {
    return invalid("piece " + std::to_string(id) + ", " + quoted_value(piece.text) + ": " + what);
  };
  if (id > kVocabularyMax) return refuse("there are too many");
  if (piece.text.empty() || piece.text.size() > kWordBytesMax || !is_utf8(piece.text)) {
    return refuse("expected 1 to 64 bytes of UTF-8");
  }
  if (!std::isfinite(piece.score)) return refuse("its score is not a number");
  if (!seen.insert(piece.text).second) return refuse("it appears twice");
  if ((piece.type == kUnknown) != (id == 0))
    return refuse("expected the unknown token to be first");
  bool byte = false;
  if (piece.type == kByteType) {
    for (int b = 0; b < 256 && !byte; ++b) {
      if (piece.text != name_of_byte(b)) continue;
      byte = true;
      model.bytes[static_cast<size_t>(b)] = id;
    }
    if (!byte) return refuse("it does not name a byte");
  } else if (piece.type != kNormal && piece.type != kUnknown) {
    return refuse("its type is unknown");
  }
  model.pieces.push_back(std::move(piece.text));
  model.scores.push_back(piece.score);
  model.is_byte.push_back(byte);
  return {};
}

/// Splits text into pieces. Byte pieces and the unknown token match no text directly.
///
/// The text is first divided into stretches, between characters that are never adjacent in a piece.
/// No piece can cross such a boundary, so stretches are encoded independently and cached.
class SubwordTokenizer final : public Tokenizer {
 public:
  SubwordTokenizer(SubwordModel model, int32_t first) : model_(std::move(model)), first_(first) {
    bool any = false;
    for (size_t id = 1; id < model_.pieces.size(); ++id) {
      if (model_.is_byte[id]) continue;
      const std::string_view piece = model_.pieces[id];
      ids_.emplace(piece, static_cast<int32_t>(id));
      least_score_ = any ? std::min(least_score_, model_.scores[id]) : model_.scores[id];
      any = true;
      longest_ = std::max(longest_, piece.size());
      std::string_view rest = piece;
      for (char32_t before = take_code_point(rest); !rest.empty();) {
        const char32_t c = take_code_point(rest);
        pairs_.insert(pair_of(before, c));
        before = c;
      }
    }
  }

  void encode(std::string_view text, int64_t tokens_max, std::vector<int32_t>& out) const override {
    Writer writer{out, static_cast<size_t>(std::ssize(out) + std::max<int64_t>(tokens_max, 0)), {}};
    std::string stretch;  // each pair of adjacent characters in it occurs in a piece
    char32_t before = 0;
    while (!text.empty() && out.size() < writer.size_max) {
      const char32_t c = take_code_point(text);
      const bool blank = c == U' ';
      const char32_t shown = blank ? kBlankCodePoint : c;
      const bool literal = c == kBlankCodePoint;
      if (!stretch.empty() && (literal || stretch.size() > kStretchBytesMax ||
                               !pairs_.contains(pair_of(before, shown)))) {
        flush(stretch, writer);
      }
      append_utf8(stretch, shown);
      before = shown;
      if (literal) {
        add_bytes(stretch, writer);
        stretch.clear();
      }
    }
    if (!stretch.empty()) flush(stretch, writer);
  }

 private:
  struct Writer {
    std::vector<int32_t>& out;
    size_t size_max;
    std::unordered_map<std::string, std::vector<int32_t>> known;  // cache: tokens of stretches

    void add(int32_t token) {
      if (out.size() < size_max) out.push_back(token);
    }
  };
  // A longer stretch is divided anyway, to bound the memory of its encoding.
  static constexpr size_t kStretchBytesMax = 16384;
  static constexpr size_t kKnownMax = 65536, kKnownBytesMax = 64;

  static uint64_t pair_of(char32_t a, char32_t b) { return uint64_t{a} << 32 | b; }

  void add_bytes(std::string_view text, Writer& writer) const {
    for (const char c : text) {
      writer.add(first_ + model_.bytes[static_cast<unsigned char>(c)]);
    }
  }

  void flush(std::string& stretch, Writer& writer) const {
    const auto known = writer.known.find(stretch);
    if (known != writer.known.end()) {
      for (const int32_t token : known->second) writer.add(token);
    } else {
      const size_t begin = writer.out.size();
      if (model_.unigram) {
        cut_by_likelihood(stretch, writer);
      } else {
        cut_by_merges(stretch, writer);
      }
      if (stretch.size() <= kKnownBytesMax && writer.known.size() < kKnownMax &&
          writer.out.size() < writer.size_max) {
        writer.known.emplace(
            stretch, std::vector<int32_t>(writer.out.begin() + static_cast<std::ptrdiff_t>(begin),
                                          writer.out.end()));
      }
    }
    stretch.clear();
  }

  /// Returns the id of a piece; -1 if the text is not a piece.
  int32_t find(std::string_view piece) const {
    const auto it = ids_.find(piece);
    return it == ids_.end() ? -1 : it->second;
  }
  void add_piece_or_bytes(std::string_view piece, Writer& writer) const {
    const int32_t id = find(piece);
    if (id >= 0) {
      writer.add(first_ + id);
    } else {  // a blank that is no piece is encoded as the byte of ' ', not as those of U+2581
      add_bytes(piece == kBlank ? " " : piece, writer);
    }
  }

  /// Encodes by BPE: joins adjacent segments that form a piece, the pair with the highest score
  /// first, the leftmost one of equal scores.
  void cut_by_merges(std::string_view stretch, Writer& writer) const {
    struct Segment {
      int32_t before, after;  // indices of the neighbors; -1: none
      std::string_view text;  // empty: joined to the segment before
    };
    struct Join {
      float score;
      int32_t left, right;
      size_t size;
    };
    const auto worse = [](const Join& a, const Join& b) {
      return a.score != b.score ? a.score < b.score : a.left > b.left;
    };
    std::vector<Segment> parts;
    std::priority_queue<Join, std::vector<Join>, decltype(worse)> joins(worse);
    const auto part = [&](int32_t i) -> Segment& { return parts[static_cast<size_t>(i)]; };
    const auto propose = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const std::string_view whole(part(left).text.data(),
                                   part(left).text.size() + part(right).text.size());
      const int32_t id = find(whole);
      if (id < 0) return;
      joins.push({model_.scores[static_cast<size_t>(id)], left, right, whole.size()});
    };
    for (std::string_view rest = stretch; !rest.empty();) {
      const char* const begin = rest.data();
      (void)take_code_point(rest);
      const auto i = static_cast<int32_t>(parts.size());
      parts.push_back({i - 1, rest.empty() ? -1 : i + 1,
                       std::string_view(begin, static_cast<size_t>(rest.data() - begin))});
    }
    for (int32_t i = 1; i < static_cast<int32_t>(parts.size()); ++i) propose(i - 1, i);
    while (!joins.empty()) {
      const Join join = joins.top();
      joins.pop();
      Segment& left = part(join.left);
      Segment& right = part(join.right);
      if (left.text.empty() || right.text.empty() ||
          left.text.size() + right.text.size() != join.size) {
        continue;  // outdated: one of the segments has been joined to another since
      }
      left.text = std::string_view(left.text.data(), join.size);
      left.after = right.after;
      if (right.after >= 0) part(right.after).before = join.left;
      right.text = {};
      propose(left.before, join.left);
      propose(join.left, left.after);
    }
    for (int32_t i = 0; i >= 0; i = part(i).after) add_piece_or_bytes(part(i).text, writer);
  }

  /// Encodes by the unigram model: finds the segmentation with the greatest sum of scores
  /// (Viterbi).
  void cut_by_likelihood(std::string_view stretch, Writer& writer) const {
    struct Best {
      float score = 0;
      int32_t begin = -1;  // begin of the last piece; -1: no segmentation ends here
    };
    std::vector<Best> best(stretch.size() + 1);
    const auto offer = [&](size_t begin, size_t end, float score) {
      if (best[end].begin < 0 || score > best[end].score) {
        best[end] = {score, static_cast<int32_t>(begin)};
      }
    };
    for (size_t begin = 0; begin < stretch.size();) {
      std::string_view rest = stretch.substr(begin);
      const float so_far = best[begin].score;
      size_t next = begin;
      while (!rest.empty()) {
        (void)take_code_point(rest);
        const size_t end = stretch.size() - rest.size();
        if (end - begin > longest_ && next != begin) break;
        const int32_t id = find(stretch.substr(begin, end - begin));
        if (id >= 0) {
          offer(begin, end, model_.scores[static_cast<size_t>(id)] + so_far);
        } else if (next == begin) {
          offer(begin, end, least_score_ - kUnknownPenalty + so_far);
        }
        if (next == begin) next = end;
      }
      begin = next;
    }
    std::vector<std::string_view> cut;
    for (size_t end = stretch.size(); end > 0;) {
      const auto begin = static_cast<size_t>(best[end].begin);
      cut.push_back(stretch.substr(begin, end - begin));
      end = begin;
    }
    for (auto piece = cut.rbegin(); piece != cut.rend(); ++piece) {
      add_piece_or_bytes(*piece, writer);
    }
  }

  const SubwordModel model_;
  const int32_t first_;
  std::unordered_map<std::string_view, int32_t> ids_;  // id of each piece; views of model_.pieces
  std::unordered_set<uint64_t> pairs_;                 // characters that are adjacent in a piece
  float least_score_ = 0;
  size_t longest_ = 0;
};

}  // namespace

Result<SubwordModel> read_subword_model(TokenizerKind kind, std::string_view bytes) {
  SubwordModel model;
  model.unigram = kind == TokenizerKind::kUnigram;
  Settings settings;
  std::unordered_set<std::string> seen;
  const WireReader reader(kModelWire, std::as_bytes(std::span(bytes)));
  Status s = for_each_field(reader, [&](const WireField& f) -> Status {
    if (f.number == 1) {
      ASSIGN_OR_RETURN(PieceMessage piece, read_piece(f));
      return add_piece(std::move(piece), model, seen);
    }
    if (f.number == 2) return read_trainer(f, settings);
    if (f.number == 3) return read_normalizer(f, settings);
    if (f.number == 5) return read_denormalizer(f, settings);
    return {};
  });
  if (!s.ok()) return std::move(s).error();
  if (s = check_settings(settings, model.unigram); !s.ok()) return std::move(s).error();
  if (std::ranges::count(model.is_byte, true) != 256)
    return invalid("it does not have all 256 bytes");
  return model;
}

std::unique_ptr<const Tokenizer> make_subword_tokenizer(SubwordModel model, int32_t first) {
  return std::make_unique<SubwordTokenizer>(std::move(model), first);
}

std::string text_of_piece(const SubwordModel& model, size_t id) {
  if (id == 0) return {};
  if (model.is_byte[id]) {
    const auto it = std::ranges::find(model.bytes, static_cast<int32_t>(id));
    return std::string(1, static_cast<char>(it - model.bytes.begin()));
  }
  std::string text;
  for (std::string_view rest = model.pieces[id]; !rest.empty();) {
    const char32_t c = take_code_point(rest);
    append_utf8(text, c == kBlankCodePoint ? U' ' : c);
  }
  return text;
}

}  // namespace trainyard
