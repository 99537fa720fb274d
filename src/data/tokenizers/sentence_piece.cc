#include "src/data/tokenizers/sentence_piece.h"

#include <cmath>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "src/base/text.h"
#include "src/base/wire_reader.h"
#include "src/data/tokenizers/bpe_model.h"
#include "src/data/tokenizers/charsmap.h"
#include "src/data/tokenizers/piece_bpe_model.h"
#include "src/data/tokenizers/unigram_model.h"

namespace trainyard {
namespace {

constexpr WireFormat kPieceWire{"TOKENIZER_INVALID", "not a valid SentencePiece model"};
constexpr std::string_view kMark = "\xe2\x96\x81";  // U+2581 in place of a blank
constexpr size_t kPieceBytesMax = 1024;

template <typename T>
Status store_value(Result<T> value, T& into) {
  if (!value.ok()) return std::move(value).error();
  into = *std::move(value);
  return {};
}

/// The fields of a model that influence ids; the defaults are the library's.
struct PieceFile {
  std::vector<std::string> texts;
  std::vector<double> scores;
  std::vector<int64_t> types;
  int64_t model_type = 1;  // 1 unigram, 2 BPE, 3 words, 4 characters
  int64_t byte_fallback = 0, blank_is_suffix = 0;
  int64_t unknown_id = 0, begin_id = 1, end_id = 2, padding_id = -1;
  std::string charsmap;
  int64_t add_blank = 1, drop_blanks = 1, escape_blanks = 1;
  bool denormalizes = false;
};

Status read_piece_message(const WireField& field, PieceFile& out) {
  std::string text;
  float score = 0;
  int64_t type = 1;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 1) return store_value(text_of(f), text);
    if (f.number == 2) return store_value(float_of(f), score);
    if (f.number == 3) return store_value(int_of(f), type);
    return {};
  });
  if (!s.ok()) return s;
  const auto refuse = [&](const char* what) {
    return invalid_wire(kPieceWire, "piece " + std::to_string(out.texts.size()) + ", " +
                                        quoted_value(text) + ": " + what);
  };
  if (std::ssize(out.texts) >= TokenNames::kTokensMax) return refuse("there are too many");
  if (text.empty() || text.size() > kPieceBytesMax || !is_utf8(text)) {
    return refuse("expected 1 to 1024 bytes of UTF-8");
  }
  if (!std::isfinite(score)) return refuse("its score is not a number");
  if (type < 1 || type > 6) return refuse("its type is unknown");
  out.texts.push_back(std::move(text));
  out.scores.push_back(static_cast<double>(score));
  out.types.push_back(type);
  return {};
}

Status read_trainer_spec(const WireField& field, PieceFile& out) {
  return for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 3) return store_value(int_of(f), out.model_type);
    if (f.number == 24) return store_value(int_of(f), out.blank_is_suffix);
    if (f.number == 35) return store_value(int_of(f), out.byte_fallback);
    if (f.number == 40) return store_value(int_of(f), out.unknown_id);
    if (f.number == 41) return store_value(int_of(f), out.begin_id);
    if (f.number == 42) return store_value(int_of(f), out.end_id);
    if (f.number == 43) return store_value(int_of(f), out.padding_id);
    return {};
  });
}

Status read_normalizer_spec(const WireField& field, PieceFile& out) {
  return for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 2) return store_value(text_of(f), out.charsmap);
    if (f.number == 3) return store_value(int_of(f), out.add_blank);
    if (f.number == 4) return store_value(int_of(f), out.drop_blanks);
    if (f.number == 5) return store_value(int_of(f), out.escape_blanks);
    return {};
  });
}

Result<PieceFile> read_piece_file(std::string_view bytes) {
  PieceFile out;
  const WireReader reader(kPieceWire, std::as_bytes(std::span(bytes)));
  Status s = for_each_field(reader, [&](const WireField& f) -> Status {
    if (f.number == 1) return read_piece_message(f, out);
    if (f.number == 2) return read_trainer_spec(f, out);
    if (f.number == 3) return read_normalizer_spec(f, out);
    if (f.number == 5) {
      return for_each_field(f, [&](const WireField& inner) -> Status {
        if (inner.number == 2) out.denormalizes = out.denormalizes || !inner.bytes.empty();
        return {};
      });
    }
    return {};
  });
  if (!s.ok()) return std::move(s).error();
  if (out.texts.empty()) return invalid_wire(kPieceWire, "it has no pieces");
  return out;
}

/// Normalizes a text as the library does: rules, blanks, and a blank in front.
class PieceNormalizer final : public TextRewriter {
 public:
  PieceNormalizer(const PieceFile& file, Charsmap map, TokenTrie user_defined)
      : map_(std::move(map)),
        user_defined_(std::move(user_defined)),
        add_blank_(file.add_blank != 0),
        drop_blanks_(file.drop_blanks != 0),
        blank_(file.escape_blanks != 0 ? kMark : " "),
        suffix_(file.blank_is_suffix != 0) {}

  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](const TextPieces::Range& range, TextPieces::Writer& out) {
      const std::string_view text = pieces.text_of(range);
      size_t at = 0;
      if (drop_blanks_) {  // those in front
        while (at < text.size()) {
          const auto [bytes, part] = next_part(text.substr(at));
          if (part != " ") break;
          at += bytes;
        }
      }
      if (at == text.size()) return;
      const size_t begin = out.size();
      bool after_blank = drop_blanks_;
      if (add_blank_ && !suffix_) out.put(blank_, range.begin + at);
      while (at < text.size()) {
        auto [bytes, part] = next_part(text.substr(at));
        const size_t place = range.begin + at;
        while (after_blank && part.starts_with(' ')) part.remove_prefix(1);
        for (const char& c : part) out.put(c == ' ' ? blank_ : std::string_view(&c, 1), place);
        // A rule that leaves nothing changes nothing.
        if (!part.empty()) after_blank = drop_blanks_ && part.ends_with(' ');
        at += bytes;
      }
      if (drop_blanks_) out.drop_ends(blank_, begin);
      if (add_blank_ && suffix_) out.put(blank_, range.end);
    });
  }

 private:
  /// Returns how many bytes of the text are replaced next, and by what.
  std::pair<size_t, std::string_view> next_part(std::string_view text) const {
    size_t longest = 0;
    user_defined_.visit_prefixes(text, [&](int32_t, size_t bytes) { longest = bytes; });
    if (longest > 0) return {longest, text.substr(0, longest)};
    if (const auto found = map_.find_longest(text)) return {found->bytes, found->in_place};
    std::string_view rest = text;
    (void)take_code_point(rest);
    const size_t bytes = text.size() - rest.size();
    return {bytes, text.substr(0, bytes)};
  }

  Charsmap map_;
  TokenTrie user_defined_;
  bool add_blank_, drop_blanks_;
  std::string_view blank_;
  bool suffix_;
};

constexpr std::string_view kUnknownText = " \xe2\x81\x87 ";  // the library's text for it

enum PieceType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// Decodes as the library does: without the blank that the encoder adds.
class PieceDecoder final : public DecoderStep {
 public:
  explicit PieceDecoder(const PieceFile& file)
      : drops_first_(file.add_blank != 0 || file.drop_blanks != 0),
        drops_all_(file.drop_blanks != 0),
        bytes_(make_byte_token_decoder()) {
    for (size_t id = 0; id < file.texts.size(); ++id) {
      if (file.types[id] == kControl) controls_.insert(file.texts[id]);
      if (file.types[id] == kUnknown) unknown_ = file.texts[id];
    }
  }
  void apply(std::vector<std::string>& tokens) const override {
    bool first = drops_first_;
    for (std::string& token : tokens) {
      const bool control = controls_.contains(token);
      if (first && token.starts_with(kMark)) token.erase(0, kMark.size());
      if (!control) first = first && drops_all_ && token.empty();
      apply_inside(token);
    }
  }
  void apply_inside(std::string& token) const override {
    if (token == unknown_) token = kUnknownText;
    bytes_->apply_inside(token);
    for (size_t at = 0; (at = token.find(kMark, at)) != std::string::npos; ++at) {
      token.replace(at, kMark.size(), " ");
    }
  }

 private:
  bool drops_first_, drops_all_;
  std::unique_ptr<const DecoderStep> bytes_;
  std::unordered_set<std::string> controls_;
  std::string unknown_;
};

Status check_piece_file(const PieceFile& file) {
  if (file.model_type != 1 && file.model_type != 2) {
    return invalid_wire(kPieceWire, "its type is not unigram or BPE");
  }
  if (file.denormalizes) return invalid_wire(kPieceWire, "rules for decoding are not known");
  int64_t unknown = 0;
  for (const int64_t type : file.types) unknown += type == kUnknown ? 1 : 0;
  if (unknown != 1) return invalid_wire(kPieceWire, "expected one unknown token");
  for (const int64_t type : file.types) {
    if (type == kUnused) return invalid_wire(kPieceWire, "pieces that are not used are not known");
  }
  return {};
}

Result<std::shared_ptr<TokenNames>> name_pieces(const PieceFile& file, const std::string& path) {
  auto names = std::make_shared<TokenNames>();
  for (size_t id = 0; id < file.texts.size(); ++id) {
    if (Status s = names->add(file.texts[id], static_cast<int64_t>(id), path); !s.ok()) {
      return std::move(s).error();
    }
  }
  return names;
}

}  // namespace

Result<std::shared_ptr<TokenPipeline>> read_sentence_piece(std::string_view bytes,
                                                           const std::string& path,
                                                           SentencePieceTokens& special) {
  ASSIGN_OR_RETURN(const PieceFile file, read_piece_file(bytes));
  if (Status s = check_piece_file(file); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const std::shared_ptr<TokenNames> names, name_pieces(file, path));
  ASSIGN_OR_RETURN(Charsmap map, Charsmap::read(file.charsmap, path + ": precompiled_charsmap"));
  auto pipeline = std::make_shared<TokenPipeline>();
  pipeline->names = names;
  std::vector<bool> matched(file.texts.size());
  std::vector<bool> user_defined(file.texts.size());
  TokenTrie user_trie;
  int32_t unknown = -1;
  for (size_t i = 0; i < file.texts.size(); ++i) {
    const int64_t type = file.types[i];
    const auto id = static_cast<int32_t>(i);
    matched[i] = type == kNormal || type == kUserDefined;
    user_defined[i] = type == kUserDefined;
    if (user_defined[i]) user_trie.add(file.texts[i], id);
    if (type == kUnknown) unknown = id;
    if (type != kControl && type != kUnknown) continue;
    AddedToken token{file.texts[i], id, true};
    if (Status s = pipeline->add_token(std::move(token), path); !s.ok()) {
      return std::move(s).error();
    }
  }
  const auto role = [&](int64_t id) {
    const bool known =
        id >= 0 && id < std::ssize(file.types) && file.types[static_cast<size_t>(id)] == kControl;
    return known ? static_cast<int32_t>(id) : -1;
  };
  special = {role(file.begin_id), role(file.end_id), unknown, role(file.padding_id)};
  pipeline->normalizers.push_back(
      std::make_unique<PieceNormalizer>(file, std::move(map), user_trie));
  if (file.model_type == 2) {
    PieceBpeSettings settings;
    settings.unknown = unknown;
    settings.byte_fallback = file.byte_fallback != 0;
    settings.user_defined = std::move(user_defined);
    settings.matched = std::move(matched);
    pipeline->model = std::make_unique<PieceBpeModel>(names, file.scores, std::move(settings));
  } else {
    UnigramSettings settings;
    settings.unknown = unknown;
    settings.byte_fallback = file.byte_fallback != 0;
    settings.single_precision = true;
    settings.user_defined = std::move(user_defined);
    pipeline->model =
        std::make_unique<UnigramModel>(names, file.scores, std::move(settings), matched);
  }
  pipeline->decoders.push_back(std::make_unique<PieceDecoder>(file));
  return pipeline;
}

}  // namespace trainyard
