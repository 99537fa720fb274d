#include "src/data/text/tokenizer.h"

#include <algorithm>
#include <array>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/text/subword_model.h"
#include "src/data/text/subword_training.h"
#include "src/data/text/word_break.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"

namespace trainyard {
namespace {

constexpr size_t kCodePoints = 0x110000;

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(const TextSchema& schema)
      : first_(static_cast<int32_t>(schema.first_piece_id())) {}
  void encode(std::string_view text, int64_t tokens_max, std::vector<int32_t>& out) const override {
    for (const char c : text.substr(0, static_cast<size_t>(tokens_max))) {
      out.push_back(first_ + static_cast<unsigned char>(c));
    }
  }

 private:
  int32_t first_;
};

class CharTokenizer final : public Tokenizer {
 public:
  explicit CharTokenizer(const TextSchema& schema)
      : ids_(kCodePoints, static_cast<int32_t>(schema.unknown_id())) {
    auto id = static_cast<int32_t>(schema.first_piece_id());
    for (std::string_view piece : schema.pieces) {
      ids_[static_cast<size_t>(take_code_point(piece))] = id++;
    }
  }
  void encode(std::string_view text, int64_t tokens_max, std::vector<int32_t>& out) const override {
    for (; !text.empty() && tokens_max > 0; --tokens_max) {
      out.push_back(ids_[static_cast<size_t>(take_code_point(text))]);
    }
  }

 private:
  std::vector<int32_t> ids_;  // token id of each code point
};

class WordTokenizer final : public Tokenizer {
 public:
  explicit WordTokenizer(const TextSchema& schema)
      : pieces_(schema.pieces), unknown_(static_cast<int32_t>(schema.unknown_id())) {
    auto id = static_cast<int32_t>(schema.first_piece_id());
    for (const std::string& piece : pieces_) ids_.emplace(piece, id++);
  }
  void encode(std::string_view text, int64_t tokens_max, std::vector<int32_t>& out) const override {
    if (tokens_max <= 0) return;
    visit_word_segments(text, [&](std::string_view segment) {
      const auto it = ids_.find(std::string_view(word_of(segment)));
      out.push_back(it == ids_.end() ? unknown_ : it->second);
      return --tokens_max > 0;
    });
  }

 private:
  const std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, int32_t> ids_;  // token id of each piece; views of pieces_
  int32_t unknown_;
};

/// Encodes as the tokenizer of a pretrained model does by default: with special tokens, for which a
/// text that is too long makes room.
class PretrainedText final : public Tokenizer {
 public:
  explicit PretrainedText(PretrainedTokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  void encode(std::string_view text, int64_t tokens_max, std::vector<int32_t>& out) const override {
    const size_t size_max = out.size() + static_cast<size_t>(std::max<int64_t>(tokens_max, 0));
    const auto put = [&](std::span<const int32_t> tokens) {
      out.insert(out.end(), tokens.begin(), tokens.end());
    };
    put(tokenizer_.prefix());
    const size_t first = out.size(), after = tokenizer_.suffix().size();
    tokenizer_.encode(text, true, out);
    if (out.size() + after > size_max) {
      out.resize(std::max(first, size_max - std::min(size_max, after)));
    }
    put(tokenizer_.suffix());
    if (out.size() > size_max) out.resize(size_max);
  }

 private:
  PretrainedTokenizer tokenizer_;
};

constexpr std::array<std::string_view, 6> kTokenizerNames = {"byte", "char",    "word",
                                                             "bpe",  "unigram", "pretrained"};

/// Returns the model of a schema, which was checked when the schema was built.
SubwordModel subword_model(const TextSchema& schema) {
  Result<SubwordModel> model = read_subword_model(schema.tokenizer, schema.model);
  TRAINYARD_CHECK(model.ok(), "a schema with an unchecked tokenizer model");
  return *std::move(model);
}

}  // namespace

std::string_view name_of(TokenizerKind kind) { return kTokenizerNames[static_cast<size_t>(kind)]; }

std::optional<TokenizerKind> find_tokenizer(std::string_view name) {
  const auto it = std::ranges::find(kTokenizerNames, name);
  if (it == kTokenizerNames.end()) return std::nullopt;
  return static_cast<TokenizerKind>(it - kTokenizerNames.begin());
}

bool is_subword(TokenizerKind kind) {
  return kind == TokenizerKind::kBpe || kind == TokenizerKind::kUnigram;
}
bool is_sized(TokenizerKind kind) { return kind == TokenizerKind::kWord || is_subword(kind); }

int64_t TextSchema::padding_id() const {
  if (stream()) return -1;
  if (tokenizer != TokenizerKind::kPretrained) return 0;
  return padding_token >= 0 ? padding_token : std::max(end_token, 0);
}
int64_t TextSchema::unknown_id() const {
  if (tokenizer == TokenizerKind::kPretrained) return unknown_token;
  return tokenizer == TokenizerKind::kByte ? -1 : padding_id() + 1;
}
int64_t TextSchema::first_piece_id() const {
  if (tokenizer == TokenizerKind::kPretrained) return 0;
  return padding_id() + (tokenizer == TokenizerKind::kByte ? 1 : 2);
}
int64_t TextSchema::vocabulary_size() const {
  if (tokenizer == TokenizerKind::kPretrained) return pretrained_tokens;
  return first_piece_id() + (tokenizer == TokenizerKind::kByte ? 256 : std::ssize(pieces)) +
         (end_token >= 0 ? 1 : 0);
}

std::string_view TextSchema::unicode_version() const {
  return tokenizer == TokenizerKind::kWord ? word_break_version() : std::string_view();
}

std::unique_ptr<const Tokenizer> make_tokenizer(const TextSchema& schema) {
  switch (schema.tokenizer) {
    case TokenizerKind::kByte:
      return std::make_unique<ByteTokenizer>(schema);
    case TokenizerKind::kChar:
      return std::make_unique<CharTokenizer>(schema);
    case TokenizerKind::kWord:
      return std::make_unique<WordTokenizer>(schema);
    case TokenizerKind::kBpe:
    case TokenizerKind::kUnigram:
      return make_subword_tokenizer(subword_model(schema),
                                    static_cast<int32_t>(schema.unknown_id()));
    case TokenizerKind::kPretrained:
      return std::make_unique<PretrainedText>(pretrained_tokenizer(schema));
  }
  return nullptr;
}

std::vector<std::string> token_texts(const TextSchema& schema) {
  if (schema.tokenizer == TokenizerKind::kPretrained) {
    const PretrainedTokenizer tokenizer = pretrained_tokenizer(schema);
    std::vector<std::string> texts;
    for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      texts.push_back(tokenizer.piece(id));
    }
    return texts;
  }
  std::vector<std::string> texts(static_cast<size_t>(schema.first_piece_id()));
  if (schema.tokenizer == TokenizerKind::kByte) {
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  } else if (is_subword(schema.tokenizer)) {
    const SubwordModel model = subword_model(schema);
    for (size_t id = 1; id < model.pieces.size(); ++id) texts.push_back(text_of_piece(model, id));
  } else {
    texts.insert(texts.end(), schema.pieces.begin(), schema.pieces.end());
  }
  if (schema.end_token >= 0) texts.emplace_back();
  return texts;
}

Status set_subword_model(std::string model, TextSchema& schema) {
  ASSIGN_OR_RETURN(SubwordModel read, read_subword_model(schema.tokenizer, model));
  read.pieces.erase(read.pieces.begin());
  schema.pieces = std::move(read.pieces);
  schema.model = std::move(model);
  return {};
}

Status set_tokenizer_files(TokenizerFiles files, TextSchema& schema) {
  ASSIGN_OR_RETURN(const PretrainedTokenizer tokenizer, PretrainedTokenizer::read(files));
  schema.tokenizer = TokenizerKind::kPretrained;
  schema.pretrained_tokens = tokenizer.vocabulary_size();
  schema.end_token = tokenizer.end_token();
  schema.padding_token = tokenizer.padding_token().value_or(-1);
  schema.unknown_token = tokenizer.unknown_token().value_or(-1);
  schema.files = std::make_shared<const TokenizerFiles>(std::move(files));
  return {};
}

PretrainedTokenizer pretrained_tokenizer(const TextSchema& schema) {
  TRAINYARD_CHECK(schema.files != nullptr, "a schema without the files of its tokenizer");
  Result<PretrainedTokenizer> tokenizer = PretrainedTokenizer::read(*schema.files);
  TRAINYARD_CHECK(tokenizer.ok(), "a schema with an unchecked tokenizer");
  return *std::move(tokenizer);
}

VocabularyCounter::VocabularyCounter(TokenizerKind kind)
    : kind_(kind), sample_(is_subword(kind) ? std::make_unique<SentenceSample>() : nullptr) {}
VocabularyCounter::~VocabularyCounter() = default;

Status VocabularyCounter::add(std::string_view text, const std::string& what) {
  if (sample_) {
    sample_->add(text);
  } else if (kind_ == TokenizerKind::kChar) {
    code_points_.resize(kCodePoints);
    while (!text.empty()) ++code_points_[static_cast<size_t>(take_code_point(text))];
  } else if (kind_ == TokenizerKind::kWord) {
    visit_word_segments(text, [&](std::string_view segment) {
      const std::string word = word_of(segment);
      if (word.size() > kWordBytesMax) return true;
      const auto it = words_.find(word);
      if (it != words_.end()) {
        ++it->second;
      } else {
        words_.emplace(word, 1);
      }
      return std::ssize(words_) <= kDistinctWordsMax;
    });
    if (std::ssize(words_) > kDistinctWordsMax) {
      return dataset_error(what, "more than " + std::to_string(kDistinctWordsMax) +
                                     " different words; use tokenizer: char or byte");
    }
  }
  return {};
}

Status VocabularyCounter::learn(int64_t pieces_max, const std::string& field,
                                TextSchema& schema) const {
  if (kind_ == TokenizerKind::kByte) return {};
  const auto none = [&](const std::string& what) {
    return dataset_error(field, "there is no " + what + " at all");
  };
  if (sample_) {
    if (sample_->sentences().empty()) return none("text");
    ASSIGN_OR_RETURN(std::string model,
                     train_subwords(kind_, sample_->sentences(), pieces_max, field));
    return set_subword_model(std::move(model), schema);
  }
  schema.pieces = count_pieces(is_sized(kind_) ? pieces_max : kVocabularyMax);
  return schema.pieces.empty() ? none(std::string(name_of(kind_))) : Status();
}

std::vector<std::string> VocabularyCounter::count_pieces(int64_t pieces_max) const {
  std::vector<std::string> result;
  for (size_t c = 0; c < code_points_.size(); ++c) {
    if (code_points_[c] > 0) append_utf8(result.emplace_back(), static_cast<char32_t>(c));
  }
  std::vector<std::pair<int64_t, std::string_view>> words;
  words.reserve(words_.size());
  for (const auto& [word, count] : words_) words.emplace_back(-count, word);
  std::sort(words.begin(), words.end());
  for (const auto& [count, word] : words) {
    if (std::ssize(result) >= pieces_max) break;
    result.emplace_back(word);
  }
  return result;
}

}  // namespace trainyard
