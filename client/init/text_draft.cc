// Drafts for text: one text for a language model to continue, or text files with one folder per
// class.
#include <algorithm>
#include <array>
#include <set>

#include "client/init/draft_parts.h"
#include "src/base/text.h"
#include "src/data/files/byte_source.h"
#include "src/data/files/file_tree.h"
#include "src/data/files/text_files.h"
#include "src/data/limits.h"
#include "src/data/statistics.h"
#include "src/data/typed_dataset.h"
#include "src/data/unspaced_words.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;

constexpr size_t kExamined = size_t{1} << 20;  // bytes of a text in which characters are counted
constexpr size_t kCharactersMax = 500;         // with more different characters, tokens are pieces
constexpr int64_t kTextMin = 1000;

struct Text {
  std::string start;
  int64_t bytes = 0;
};

Result<Text> read_start(const fs::path& path) {
  Text text;
  ASSIGN_OR_RETURN(const bool files, contains_files(path, path.string()));
  if (files) {
    ASSIGN_OR_RETURN(const std::unique_ptr<FileTree> tree, open_file_tree(path, path.string()));
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, tree->next());
      if (!more) return text;
      if (!is_text_path(tree->path())) continue;
      std::string content;
      ASSIGN_OR_RETURN(content, read_text_file(*tree, path.string(), kTextFileBytesMax, false));
      text.bytes += static_cast<int64_t>(content.size());
      if (text.start.size() < kExamined) text.start += content;
    }
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, path.string()));
  text.start.resize(kExamined);
  ASSIGN_OR_RETURN(const size_t size, read_full(*source, text.start));
  text.start.resize(size);
  std::error_code ec;
  text.bytes = std::max(static_cast<int64_t>(size), static_cast<int64_t>(fs::file_size(path, ec)));
  return text;
}

size_t count_characters(std::string_view text) {
  std::set<char32_t> seen;
  // the text may end within a character
  if (const auto bad = find_invalid_utf8(text)) text = text.substr(0, *bad);
  while (!text.empty()) seen.insert(take_code_point(text));
  return seen.size();
}

}  // namespace

Result<JobDraft> draft_text(const fs::path& path) {
  ASSIGN_OR_RETURN(const Text text, read_start(path));
  if (text.bytes < kTextMin) {
    return unsupported(path.string() + " is a text of " + std::to_string(text.bytes) +
                       " bytes, too short to learn from; expected at least " + grouped(kTextMin) +
                       ". If it is a table, its fields are separated by " +
                       "nothing that was recognized (a comma, a semicolon, a tab, a |).");
  }
  const size_t characters = count_characters(text.start);
  JobDraft draft;
  draft.format = "text";
  draft.sources = {{"path", path}};
  draft.found = "a text of " + human_bytes(text.bytes) + " with " + std::to_string(characters) +
                " different characters";
  draft.facts.kind = DataFacts::Kind::kText;
  draft.facts.rows = text.bytes;
  if (characters > kCharactersMax) {
    draft.fields = {{"tokenizer", "bpe", "tokens are pieces of words"},
                    {"vocabulary_size", "8000"}};
    draft.target_says = "each next piece of a word";
  } else {
    draft.fields = {
        {"tokenizer", "char", "tokens are characters; bpe: pieces of words, with vocabulary_size"}};
    draft.target_says = "each next character";
  }
  draft.guess = first_guess(draft.facts);
  return draft;
}

Result<JobDraft> draft_text_files(const fs::path& path) {
  TextFilesOptions options;
  ASSIGN_OR_RETURN(const TypedDataset data, read_text_files_dataset(options, path, {}));
  const DatasetStatistics statistics = measure(data.schema, data.train);
  JobDraft draft;
  draft.format = "text_files";
  draft.sources = {{"path", path}};
  draft.found = count_of(data.schema.train_rows, "text file") + " to train";
  if (data.schema.test_rows > 0) {
    draft.found += " and " + grouped(data.schema.test_rows) + " to test";
  }
  describe_target(data.schema, statistics, "text", draft);
  for (const DataWarning& warning : data.schema.warnings) {
    if (warning.key != kWordsWithoutSpaces) draft.notes.push_back(warning.message);
  }
  draft.facts.kind = DataFacts::Kind::kTextRows;
  add_token_fields(statistics.tokens_per_row ? statistics.tokens_per_row->mean : 0, draft,
                   find_unspaced_words(data.schema.text, data.train).has_value());
  draft.guess = first_guess(draft.facts);
  return draft;
}

}  // namespace trainyard::init
