#include "src/data/documents/documents_dataset.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "src/base/text.h"
#include "src/data/documents/document_line.h"
#include "src/data/files/byte_source.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/json_lines.h"
#include "src/data/test_share.h"
#include "src/data/tokenizers/chat_template.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"

namespace trainyard {
namespace {

constexpr const char* kEndTokenField = "documents.end_token";

/// Encodes documents, and says which of their tokens count.
class DocumentEncoder {
 public:
  DocumentEncoder(const DocumentsOptions& options, PretrainedTokenizer tokenizer)
      : options_(options), tokenizer_(std::move(tokenizer)) {}

  /// Appends the document's tokens. Errors name its members.
  Status append(const DocumentLine& line, TypedRows& rows) {
    const size_t first = rows.tokens.size();
    if (line.messages) {
      if (!template_) {
        ASSIGN_OR_RETURN(template_, ChatTemplate::find(options_.chat_template, tokenizer_));
      }
      ASSIGN_OR_RETURN(const std::vector<RenderedPart> parts,
                       template_->render(*line.messages, false));
      encode_chat(tokenizer_, parts, rows.tokens, rows.counted);
    } else {
      append_text(line, rows);
    }
    if (rows.tokens.size() == first) return dataset_error("text", "has no token");
    if (options_.loss == "all")
      std::fill(rows.counted.begin() + offset(first), rows.counted.end(), 1);
    rows.counted[first] = 0;  // nothing comes before it, from which it could be predicted
    rows.starts.push_back(std::ssize(rows.tokens));
    ++rows.rows;
    return {};
  }
  /// Returns the family of the template; empty if there was no chat.
  std::string template_name() const { return template_ ? std::string(template_->name()) : ""; }

 private:
  static std::ptrdiff_t offset(size_t i) { return static_cast<std::ptrdiff_t>(i); }
  void append_text(const DocumentLine& line, TypedRows& rows) {
    const auto add = [&](std::span<const int32_t> tokens, uint8_t counts) {
      rows.tokens.insert(rows.tokens.end(), tokens.begin(), tokens.end());
      rows.counted.resize(rows.tokens.size(), counts);
    };
    add(tokenizer_.prefix(), 0);
    std::vector<RenderedPart> parts;
    if (line.text) {
      parts.push_back({*line.text, true});
    } else {
      parts = {{*line.prompt, false}, {*line.completion, true}};
    }
    encode_chat(tokenizer_, parts, rows.tokens, rows.counted);
    add(tokenizer_.suffix(), 1);
    const int32_t end = tokenizer_.end_token();
    if (options_.end_token && rows.tokens.back() != end) add(std::span(&end, 1), 1);
  }

  const DocumentsOptions& options_;
  const PretrainedTokenizer tokenizer_;
  std::optional<ChatTemplate> template_;  // found at the first chat
};

/// Reads the lines of one file; `what` names it.
Result<TypedRows> read_lines(const std::filesystem::path& path, const std::string& what,
                             const DocumentsOptions& options, DocumentEncoder& encoder,
                             std::set<std::string>& others) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  LineReader lines(*source, what);
  TypedRows rows;
  rows.starts.push_back(0);
  Problems problems;
  std::string_view text;
  while (!problems.full()) {
    ASSIGN_OR_RETURN(const bool more, lines.next(text));
    if (!more) break;
    if (text.find_first_not_of(" \t") == text.npos) continue;
    const std::string place = what + ": line " + std::to_string(lines.line());
    const std::optional<DocumentLine> line =
        read_document_line(text, place, options.loss == "answers", problems, others);
    if (!line || !problems.empty()) continue;  // the remaining lines are only checked
    if (Status s = encoder.append(*line, rows); !s.ok()) {
      Error e = std::move(s).error();
      if (e.reason != "CHAT_INVALID" && e.reason != "DATASET_INVALID") return e;
      problems.add(place, e.message);
      continue;
    }
    if (std::ssize(rows.tokens) > kRowsMax) {
      return dataset_error(what, "more than " + std::to_string(kRowsMax) + " tokens");
    }
    if (Status s = check_memory(std::ssize(rows.tokens) * 5, what); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (!problems.empty()) return problems.error();
  if (rows.rows == 0) return dataset_error(what, "the file has no documents");
  return rows;
}

std::span<const int32_t> tokens_of(const TypedRows& rows, int64_t document) {
  const auto at = static_cast<size_t>(document);
  return std::span(rows.tokens)
      .subspan(static_cast<size_t>(rows.starts[at]),
               static_cast<size_t>(rows.starts[at + 1] - rows.starts[at]));
}

/// Moves the documents that are drawn to `test`.
void hold_out(const std::vector<bool>& drawn, TypedRows& train, TypedRows& test) {
  TypedRows kept;
  kept.starts.push_back(0);
  test = kept;
  for (int64_t i = 0; i < train.rows; ++i) {
    TypedRows& to = drawn[static_cast<size_t>(i)] ? test : kept;
    const std::span<const int32_t> tokens = tokens_of(train, i);
    const auto counted = train.counted.begin() + train.starts[static_cast<size_t>(i)];
    to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
    to.counted.insert(to.counted.end(), counted, counted + std::ssize(tokens));
    to.starts.push_back(std::ssize(to.tokens));
    ++to.rows;
  }
  train = std::move(kept);
}

DocumentCounts count_documents(const TypedRows& rows) {
  DocumentCounts counts;
  for (int64_t i = 0; i < rows.rows; ++i) ++counts.lengths[std::ssize(tokens_of(rows, i))];
  counts.counted = std::accumulate(rows.counted.begin(), rows.counted.end(), int64_t{0});
  return counts;
}

/// Finds documents with the same tokens.
class SeenDocuments {
 public:
  explicit SeenDocuments(const TypedRows& rows) : rows_(rows) {}
  bool contains(std::span<const int32_t> tokens) const {
    const auto [first, last] = by_hash_.equal_range(hash_of(tokens));
    return std::any_of(first, last, [&](const auto& entry) {
      return std::ranges::equal(tokens_of(rows_, entry.second), tokens);
    });
  }
  /// Adds a document of the rows.
  void add(int64_t document) { by_hash_.emplace(hash_of(tokens_of(rows_, document)), document); }

 private:
  static uint64_t hash_of(std::span<const int32_t> tokens) {
    uint64_t hash = 14695981039346656037u;
    for (const int32_t token : tokens)
      hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211u;
    return hash;
  }
  const TypedRows& rows_;
  std::unordered_multimap<uint64_t, int64_t> by_hash_;
};

void add_copies(const TypedRows& train, const TypedRows& test, std::vector<DataWarning>& warnings) {
  constexpr int64_t kCopiesShareMin = 100;  // fewer than one document in a hundred is not told
  SeenDocuments seen(train);
  int64_t copies = 0, test_copies = 0;
  for (int64_t i = 0; i < train.rows; ++i) {
    if (seen.contains(tokens_of(train, i))) {
      ++copies;
    } else {
      seen.add(i);
    }
  }
  for (int64_t i = 0; i < test.rows; ++i) test_copies += seen.contains(tokens_of(test, i)) ? 1 : 0;
  if (copies * kCopiesShareMin >= train.rows && copies > 0) {
    warnings.push_back({"DUPLICATE_DOCUMENTS",
                        {},
                        copies,
                        std::to_string(copies) + " of " + std::to_string(train.rows) +
                            " documents are copies of earlier ones: they count several times, and "
                            "validation rows may be among the training rows. Remove them, unless "
                            "that is intended."});
  }
  if (test_copies > 0) {
    warnings.push_back({"TEST_ROWS_IN_TRAINING_SET",
                        {},
                        test_copies,
                        std::to_string(test_copies) + " of " + std::to_string(test.rows) +
                            " test documents equal a training document: metrics of the test set "
                            "are too optimistic. Remove them from one of the files."});
  }
}

/// Warns of documents from which nothing is learned.
void add_uncounted(const TypedRows& train, std::vector<DataWarning>& warnings) {
  int64_t without = 0;
  for (int64_t i = 0; i < train.rows; ++i) {
    const auto begin = train.counted.begin() + train.starts[static_cast<size_t>(i)];
    const auto end = train.counted.begin() + train.starts[static_cast<size_t>(i) + 1];
    without += std::find(begin, end, 1) == end ? 1 : 0;
  }
  if (without == 0) return;
  warnings.push_back(
      {"NOTHING_COUNTED",
       {},
       without,
       std::to_string(without) + " of " + std::to_string(train.rows) +
           " documents have no token that counts in the loss, so that nothing is "
           "learned from them: they have a single token, or no answer. Remove them."});
}

void add_unknown(const TypedRows& train, const TextSchema& text,
                 std::vector<DataWarning>& warnings) {
  constexpr int64_t kUnknownShareMin = 100;
  if (text.unknown_token < 0) return;
  const int64_t unknown = std::ranges::count(train.tokens, text.unknown_token);
  if (unknown == 0 || unknown * kUnknownShareMin < std::ssize(train.tokens)) return;
  warnings.push_back({"UNKNOWN_TOKENS",
                      {},
                      unknown,
                      std::to_string(unknown) + " of " + std::to_string(train.tokens.size()) +
                          " tokens are the unknown token: the tokenizer has no token for these "
                          "characters, and the model cannot see or write them. Is it the "
                          "tokenizer for this language?"});
}

void add_unread(const std::set<std::string>& others, std::vector<DataWarning>& warnings) {
  constexpr size_t kListedMax = 8;
  if (others.empty()) return;
  DataWarning warning{"MEMBERS_NOT_READ", {}, std::ssize(others), ""};
  std::string listed;
  for (const std::string& name : others) {
    if (warning.columns.size() == kListedMax) {
      listed += ", ...";
      break;
    }
    listed += (listed.empty() ? "" : ", ") + quoted_value(name);
    warning.columns.push_back(name);
  }
  warning.message = "the lines have members that are not read: " + listed +
                    ". What a model shall see belongs into messages, prompt and completion, or "
                    "text.";
  warnings.push_back(std::move(warning));
}

Status check_options(const DocumentsOptions& options, bool has_test,
                     const PretrainedTokenizer& tokenizer) {
  if (options.loss != "answers" && options.loss != "all") {
    return dataset_error("documents.loss",
                         quoted_value(options.loss) + ", expected answers or all");
  }
  if (Status s = check_test_share(options.test_share, has_test, "documents.test_share"); !s.ok()) {
    return s;
  }
  if (options.end_token && tokenizer.end_token() < 0) {
    return dataset_error(kEndTokenField,
                         "the tokenizer has no end token (eos_token in tokenizer_config.json); add "
                         "it there, or set documents.end_token: false");
  }
  return {};
}

}  // namespace

Result<TypedDataset> read_documents_dataset(const DocumentsOptions& options, TokenizerFiles files,
                                            const std::filesystem::path& train,
                                            const std::filesystem::path& test) {
  TypedDataset result;
  DatasetSchema& schema = result.schema;
  schema.kind = DatasetSchema::Kind::kText;
  schema.target.kind = TargetSchema::Kind::kNextToken;
  ASSIGN_OR_RETURN(PretrainedTokenizer tokenizer, PretrainedTokenizer::read(files));
  if (Status s = check_options(options, !test.empty(), tokenizer); !s.ok()) {
    return std::move(s).error();
  }
  if (Status s = set_tokenizer_files(std::move(files), schema.text); !s.ok()) {
    return std::move(s).error();
  }
  if (!options.chat_template.empty()) {  // a name that is not known is refused in any case
    const Result<ChatTemplate> named = ChatTemplate::find(options.chat_template, tokenizer);
    if (!named.ok()) return named.error();
  }
  DocumentEncoder encoder(options, std::move(tokenizer));
  std::set<std::string> others;
  ASSIGN_OR_RETURN(result.train, read_lines(train, "data", options, encoder, others));
  if (!test.empty()) {
    ASSIGN_OR_RETURN(result.test, read_lines(test, "test", options, encoder, others));
  } else if (options.test_share > 0) {
    const std::vector<int32_t> one_class(static_cast<size_t>(result.train.rows));
    hold_out(draw_test_rows(one_class, options.test_share, options.seed), result.train,
             result.test);
  }
  schema.train_rows = result.train.rows;
  schema.test_rows = result.test.rows;
  schema.documents = DocumentsSchema{count_documents(result.train), count_documents(result.test),
                                     encoder.template_name()};
  if (schema.documents->train.counted == 0) {
    return dataset_error("data",
                         "no token of any document counts in the loss; expected documents "
                         "of at least 2 tokens, or documents.loss: all");
  }
  add_uncounted(result.train, schema.warnings);
  add_copies(result.train, result.test, schema.warnings);
  add_unknown(result.train, schema.text, schema.warnings);
  add_unread(others, schema.warnings);
  return result;
}

}  // namespace trainyard
