// A dataset of one text: a stream of tokens, for language models.
#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/text.h"
#include "src/data/byte_source.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// The whole file: what it takes is checked as it comes, because gzip does not say.
Result<std::string> read_text(const std::filesystem::path& path, const std::string& what) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  std::string text;
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    ASSIGN_OR_RETURN(const size_t n, source->read(buffer));
    if (n == 0) break;
    if (text.empty() && !source->compressed()) {
      text.reserve(static_cast<size_t>(std::min(source->bytes_max(), kRowsMax)));
    }
    text.append(buffer.data(), n);
    if (std::ssize(text) > kRowsMax) {
      return dataset_error(what, "more than " + human_bytes(kRowsMax) + " of text");
    }
    // The text, and a token of 32 bits for each byte at most.
    if (Status s = check_memory(std::ssize(text) * 5, what); !s.ok()) return std::move(s).error();
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.empty()) return dataset_error(what, "the file is empty");
  return text;
}

Status check_utf8(std::string_view text, const std::string& what) {
  const std::optional<size_t> bad = find_invalid_utf8(text);
  if (!bad) return {};
  return dataset_error(what, "byte " + std::to_string(*bad) + " (" +
                                 quoted_value(text.substr(*bad, 1)) +
                                 ") is not UTF-8; store the text as UTF-8, or use tokenizer: byte");
}

Status check_options(const TextOptions& options, bool has_test) {
  const std::optional<TokenizerKind> kind = find_tokenizer(options.tokenizer);
  if (!kind || kind == TokenizerKind::kWord) {  // words do not make the text again
    return dataset_error("text.tokenizer",
                         quoted_value(options.tokenizer) + ", expected char, byte, bpe or unigram");
  }
  if (is_sized(*kind) &&
      (options.vocabulary_size < 1 || options.vocabulary_size > kVocabularyMax)) {
    return dataset_error("text.vocabulary_size", std::to_string(options.vocabulary_size) +
                                                     " is out of range, expected 1 to " +
                                                     std::to_string(kVocabularyMax));
  }
  if (!(options.test_share >= 0 && options.test_share <= kTestShareMax)) {  // not NaN
    return dataset_error("text.test_share", std::to_string(options.test_share) +
                                                " is out of range, expected [0, 0.9]");
  }
  if (has_test && options.test_share > 0) {
    return dataset_error("text.test_share", "there is a test file too, expected one of them");
  }
  return {};
}

/// Byte offset at which the last `count` code points of a UTF-8 text begin.
size_t offset_of_tail(std::string_view text, int64_t count) {
  size_t at = text.size();
  while (count > 0 && at > 0) {
    if ((static_cast<unsigned char>(text[--at]) & 0xc0) != 0x80) --count;
  }
  return at;
}

int64_t count_code_points(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void encode_all(const Tokenizer& tokenizer, std::string_view text, TypedRows& rows) {
  rows.tokens.reserve(text.size());
  tokenizer.encode(text, kRowsMax, rows.tokens);
  rows.tokens.shrink_to_fit();
  rows.rows = std::ssize(rows.tokens);
}

}  // namespace

Result<TypedDataset> read_text_dataset(const TextOptions& options,
                                       const std::filesystem::path& train,
                                       const std::filesystem::path& test) {
  if (Status s = check_options(options, !test.empty()); !s.ok()) return std::move(s).error();
  TypedDataset result;
  DatasetSchema& schema = result.schema;
  schema.kind = DatasetSchema::Kind::kText;
  schema.target.kind = TargetSchema::Kind::kNextToken;
  schema.text.tokenizer = *find_tokenizer(options.tokenizer);
  const bool chars = schema.text.tokenizer != TokenizerKind::kByte;  // of UTF-8

  ASSIGN_OR_RETURN(const std::string text, read_text(train, "data"));
  std::string test_text;
  if (!test.empty()) {
    ASSIGN_OR_RETURN(test_text, read_text(test, "test"));
  }
  if (chars) {
    if (Status s = check_utf8(text, "data"); !s.ok()) return std::move(s).error();
    if (Status s = check_utf8(test_text, "test"); !s.ok()) return std::move(s).error();
  }
  std::string_view train_part = text;
  std::string_view test_part = test_text;
  if (options.test_share > 0) {
    const int64_t units = chars ? count_code_points(text) : std::ssize(text);
    const int64_t held_out = std::llround(static_cast<double>(units) * options.test_share);
    const size_t at =
        chars ? offset_of_tail(text, held_out) : text.size() - static_cast<size_t>(held_out);
    train_part = train_part.substr(0, at);
    test_part = std::string_view(text).substr(at);
  }
  if (chars) {
    VocabularyCounter counter(schema.text.tokenizer);
    if (Status s = counter.add(train_part, "data"); !s.ok()) return std::move(s).error();
    if (Status s = counter.learn(options.vocabulary_size, "text", schema.text); !s.ok()) {
      return std::move(s).error();
    }
  }
  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(schema.text);
  encode_all(*tokenizer, train_part, result.train);
  encode_all(*tokenizer, test_part, result.test);
  schema.train_rows = result.train.rows;
  schema.test_rows = result.test.rows;
  if (schema.train_rows < 2) {
    return dataset_error("data", std::to_string(schema.train_rows) +
                                     " token to train on, expected at least 2: one to see and one "
                                     "to predict");
  }
  return result;
}

}  // namespace trainyard
