// Reads a dataset of one text, a stream of tokens for language models.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/files/byte_source.h"
#include "src/data/files/text_files.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/json_lines.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

/// Checks that the memory suffices for a text of so many bytes and for one 32-bit token per byte.
Status check_size(int64_t bytes, const std::string& what) {
  if (bytes > kRowsMax)
    return dataset_error(what, "more than " + human_bytes(kRowsMax) + " of text");
  return check_memory(bytes * 5, what);
}

/// The texts of a source, one after the other.
struct Texts {
  std::string text;
  std::vector<size_t> ends;  // the byte behind each text, if each ends with a token of its own
};

/// Reads the whole file. Its size is checked while it is read, because a gzip file does not state
/// it.
Result<Texts> read_file_text(ByteSource& source, const std::string& what) {
  std::string text;
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    ASSIGN_OR_RETURN(const size_t n, source.read(buffer));
    if (n == 0) break;
    if (text.empty() && !source.compressed()) {
      text.reserve(static_cast<size_t>(std::min(source.bytes_max(), kRowsMax)));
    }
    text.append(buffer.data(), n);
    if (Status s = check_size(std::ssize(text), what); !s.ok()) return std::move(s).error();
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return Texts{std::move(text), {}};
}

/// Reads the texts in the member `field` of each line's object. They are joined by line breaks,
/// unless each ends with a token. Lines without this member are skipped.
Result<Texts> read_member_texts(ByteSource& source, const std::string& field, bool end_tokens,
                                const std::string& what) {
  LineReader lines(source, what);
  Texts texts;
  std::string& text = texts.text;
  std::string_view line;
  std::vector<std::string> others;  // members before the first text, for a hint in the error
  bool found = false;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, lines.next(line));
    if (!more) break;
    if (line.find_first_not_of(" \t") == line.npos) continue;
    const std::string place = what + ": line " + std::to_string(lines.line());
    const auto take = [&](const std::string& name, const JsonMember& member) -> Status {
      if (!found && others.size() < 64) others.push_back(name);
      if (name != field || member.kind == JsonMember::Kind::kNull) return {};
      if (member.kind != JsonMember::Kind::kText) {
        return dataset_error(place + ", member " + quoted_value(name),
                             "not text, expected \"...\"");
      }
      if (found && !end_tokens) text += '\n';
      found = true;
      text += member.text;
      if (end_tokens) texts.ends.push_back(text.size());
      return check_size(std::ssize(text), what);
    };
    if (Status s = visit_json_object(line, place, take); !s.ok()) return std::move(s).error();
  }
  if (found) return texts;
  const std::optional<std::string> near = nearest_name(field, others);
  return dataset_error("text.field",
                       "no line of " + what + " has the member " + quoted_value(field) +
                           (near ? "; did you mean " + quoted_value(*near) + "?" : ""));
}

/// Joins the .txt files of a folder or an archive in the order of their paths. Each begins on a new
/// line, unless each ends with a token.
Result<Texts> read_files_texts(const std::filesystem::path& path, const std::string& what,
                               bool bytes, bool end_tokens) {
  ASSIGN_OR_RETURN(const std::unique_ptr<FileTree> tree, open_file_tree(path, what));
  std::map<std::string, std::string> texts;  // content of each file, sorted by path
  int64_t total = 0;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, tree->next());
    if (!more) break;
    if (!is_text_path(tree->path())) continue;
    ASSIGN_OR_RETURN(std::string text, read_text_file(*tree, what, size_t{kRowsMax}, bytes));
    total += std::ssize(text) + 1;
    if (Status s = check_size(total, what); !s.ok()) return std::move(s).error();
    if (!texts.emplace(tree->path(), std::move(text)).second) {
      return field_error("ARCHIVE_UNSAFE", place_in_tree(what, tree->path()),
                         "the archive contains this path twice");
    }
  }
  if (texts.empty()) return dataset_error(what, "there are no .txt files");
  Texts all;
  std::string& joined = all.text;
  joined.reserve(static_cast<size_t>(total));
  for (auto& [name, text] : texts) {
    if (!end_tokens && !joined.empty() && !joined.ends_with('\n')) joined += '\n';
    joined += std::exchange(text, {});
    if (end_tokens) all.ends.push_back(joined.size());
  }
  return all;
}

Result<Texts> read_texts(const TextOptions& options, const std::filesystem::path& path,
                         const std::string& what) {
  ASSIGN_OR_RETURN(const bool files, contains_files(path, what));
  if (files) {
    if (!options.field.empty()) {
      return dataset_error("text.field", "has no effect on a folder or an archive of .txt files");
    }
    ASSIGN_OR_RETURN(Texts texts,
                     read_files_texts(path, what, options.tokenizer == "byte", options.end_token));
    if (texts.text.empty()) return dataset_error(what, "the files are empty");
    return texts;
  }
  if (options.field.empty() && options.end_token) {
    return dataset_error("text.end_token",
                         "has no effect on one text, whose end is only one of many places; remove "
                         "it, or give a folder of .txt files, or JSON lines with text.field");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  ASSIGN_OR_RETURN(Texts texts,
                   options.field.empty()
                       ? read_file_text(*source, what)
                       : read_member_texts(*source, nfc(options.field), options.end_token, what));
  if (texts.text.empty()) return dataset_error(what, "the file is empty");
  return texts;
}

Status check_options(const TextOptions& options, bool has_test) {
  const std::optional<TokenizerKind> kind = find_tokenizer(options.tokenizer);
  if (!kind || kind == TokenizerKind::kWord) {  // words cannot be decoded to the same text
    return dataset_error("text.tokenizer",
                         quoted_value(options.tokenizer) + ", expected char, byte, bpe or unigram");
  }
  if (is_sized(*kind) &&
      (options.vocabulary_size < 1 || options.vocabulary_size > kVocabularyMax)) {
    return dataset_error("text.vocabulary_size", std::to_string(options.vocabulary_size) +
                                                     " is out of range, expected 1 to " +
                                                     std::to_string(kVocabularyMax));
  }
  if (!(options.test_share >= 0 && options.test_share <= kTestShareMax)) {  // also refuses NaN
    return dataset_error("text.test_share", std::to_string(options.test_share) +
                                                " is out of range, expected [0, 0.9]");
  }
  if (has_test && options.test_share > 0) {
    return dataset_error("text.test_share", "there is also a test file, expected only one of them");
  }
  return {};
}

/// Returns the byte offset at which the last `count` code points of a UTF-8 text begin.
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

/// Returns the byte at which the test set begins: the last `share` of the text, by code points or
/// bytes, and if texts end with tokens the nearest beginning of a text.
size_t test_begin(const Texts& texts, double share, bool chars) {
  const std::string_view text = texts.text;
  const int64_t units = chars ? count_code_points(text) : std::ssize(text);
  const int64_t held_out = std::llround(static_cast<double>(units) * share);
  const size_t at =
      chars ? offset_of_tail(text, held_out) : text.size() - static_cast<size_t>(held_out);
  if (texts.ends.empty()) return at;
  const auto after = std::ranges::lower_bound(texts.ends, at);
  const size_t end = after == texts.ends.end() ? texts.ends.back() : *after;
  if (after == texts.ends.begin()) return end;
  const size_t before = *std::prev(after);
  return end - at < at - before ? end : before;
}

/// Encodes the part [begin, end) of the texts, with the tokens that end them.
void encode_part(const Tokenizer& tokenizer, const Texts& texts, size_t begin, size_t end,
                 int32_t end_token, TypedRows& rows) {
  const std::string_view text = texts.text;
  rows.tokens.reserve(end - begin);
  for (const size_t text_end : texts.ends) {
    if (text_end <= begin) continue;  // of the part before, or without text
    if (text_end > end) break;
    tokenizer.encode(text.substr(begin, text_end - begin), kRowsMax, rows.tokens);
    rows.tokens.push_back(end_token);
    begin = text_end;
  }
  if (texts.ends.empty()) {
    tokenizer.encode(text.substr(begin, end - begin), kRowsMax, rows.tokens);
  }
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
  const bool chars = schema.text.tokenizer != TokenizerKind::kByte;  // the text must be UTF-8

  ASSIGN_OR_RETURN(const Texts texts, read_texts(options, train, "data"));
  Texts test_texts;
  if (!test.empty()) {
    ASSIGN_OR_RETURN(test_texts, read_texts(options, test, "test"));
  }
  if (chars) {
    if (Status s = check_utf8(texts.text, "data"); !s.ok()) return std::move(s).error();
    if (Status s = check_utf8(test_texts.text, "test"); !s.ok()) return std::move(s).error();
  }
  const size_t all = texts.text.size();
  const size_t end = options.test_share > 0 ? test_begin(texts, options.test_share, chars) : all;
  if (chars) {
    VocabularyCounter counter(schema.text.tokenizer);
    const std::string_view train_part = std::string_view(texts.text).substr(0, end);
    if (Status s = counter.add(train_part, "data"); !s.ok()) return std::move(s).error();
    if (Status s = counter.learn(options.vocabulary_size, "text", schema.text); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (options.end_token) {
    schema.text.end_token = static_cast<int32_t>(schema.text.vocabulary_size());
  }
  const int32_t end_token = schema.text.end_token;
  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(schema.text);
  encode_part(*tokenizer, texts, 0, end, end_token, result.train);
  if (!test.empty()) {
    encode_part(*tokenizer, test_texts, 0, test_texts.text.size(), end_token, result.test);
  } else {
    encode_part(*tokenizer, texts, end, all, end_token, result.test);
  }
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
