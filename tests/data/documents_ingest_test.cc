// The tests fail if documents have other tokens than transformers gives them, other tokens count, a
// bad line is accepted or reported without its line and member, or the stored lengths are not those
// of the documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/documents/document_line.h"
#include "src/data/load/packing.h"
#include "tests/data/data_samples.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Tokens = std::vector<int32_t>;

const nlohmann::json& golden() {
  static const nlohmann::json json =
      nlohmann::json::parse(std::ifstream(testing::source_path("tests/golden/documents.json")));
  return json;
}

std::string golden_lines() {
  std::string lines;
  for (const auto& line : golden()["lines"]) lines += line.get<std::string>() + "\n";
  return lines;
}

/// Ingests documents with the golden tokenizer.
IngestedFiles ingest_documents(const std::string& lines, const DocumentsOptions& options = {},
                               const std::string& test = "") {
  IngestRequest request;
  request.format = "documents";
  request.documents = options;
  if (request.documents.chat_template.empty()) request.documents.chat_template = "chatml";
  std::vector<std::pair<std::string, std::string>> sources = {
      {"data", lines},
      {"tokenizer_json", golden()["files"]["tokenizer.json"]},
      {"tokenizer_config", golden()["files"]["tokenizer_config.json"]}};
  if (!test.empty()) sources.emplace_back("test", test);
  return IngestedFiles(request, sources);
}

std::vector<std::string> violations_of(const IngestedFiles& d) {
  std::vector<std::string> texts;
  if (d.ok()) return texts;
  for (const FieldViolation& v : d.error().violations)
    texts.push_back(v.field + ": " + v.description);
  return texts;
}

TEST(DocumentsIngest, TokensAndWhatCountsAreThoseOfTransformers) {
  const IngestedFiles d = ingest_documents(golden_lines());
  ASSERT_TRUE(d.ok()) << d.message();
  const Partition& train = d->train();
  const auto& documents = golden()["documents"];
  ASSERT_EQ(train.rows, std::ssize(documents));
  int64_t counted = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    const auto first = static_cast<size_t>(train.starts[i]);
    const auto length = static_cast<size_t>(train.starts[i + 1]) - first;
    EXPECT_EQ(copy(train.tokens.subspan(first, length)), documents[i]["tokens"].get<Tokens>())
        << golden()["lines"][i];
    const auto counts = copy(train.counted.subspan(first, length));
    EXPECT_EQ(counts, documents[i]["counted"].get<std::vector<uint8_t>>()) << golden()["lines"][i];
    counted += std::ranges::count(counts, 1);
  }
  const DatasetSchema& schema = d->schema();
  ASSERT_TRUE(schema.documents);
  EXPECT_EQ(schema.documents->train.documents(), train.rows);
  EXPECT_EQ(schema.documents->train.tokens(), std::ssize(train.tokens));
  EXPECT_EQ(schema.documents->train.counted, counted);
  EXPECT_EQ(schema.documents->chat_template, "chatml");
  EXPECT_EQ(schema.text.tokenizer, TokenizerKind::kPretrained);
  EXPECT_TRUE(schema.warnings.empty()) << schema.warnings.front().message;
}

TEST(DocumentsIngest, AllTokensButTheFirstCanCount) {
  DocumentsOptions options;
  options.loss = "all";
  const IngestedFiles d = ingest_documents(golden_lines(), options);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().documents->train.counted,
            d->schema().documents->train.tokens() - d->train().rows);
}

TEST(DocumentsIngest, TheEndTokenCanBeLeftOut) {
  const std::string lines = R"({"text": "the then"})"
                            "\n"
                            R"({"prompt": "a", "completion": "b"})"
                            "\n";
  const IngestedFiles with = ingest_documents(lines);
  DocumentsOptions options;
  options.end_token = false;
  const IngestedFiles without = ingest_documents(lines, options);
  ASSERT_TRUE(with.ok() && without.ok()) << with.message() << without.message();
  const int32_t end = with->schema().text.end_token;
  EXPECT_EQ(std::ranges::count(with->train().tokens, end), 2);
  EXPECT_EQ(std::ranges::count(without->train().tokens, end), 0);
  EXPECT_EQ(without->schema().documents->train.counted,
            with->schema().documents->train.counted - 2);
}

// Rows of text with a class are read by the same tokenizer; short rows end with its padding.
TEST(DocumentsIngest, RowsOfATableCanHaveTheTokenizerOfAModel) {
  IngestRequest request;
  request.format = "jsonl";
  request.csv.target = "label";
  request.csv.text = {"text"};
  request.csv.tokenizer = "pretrained";
  request.csv.max_length = 6;
  const std::string lines =
      "{\"text\": \"the then\", \"label\": \"b\"}\n"
      "{\"text\": \"the then the then the then the then\", \"label\": \"a\"}\n";
  std::vector<std::pair<std::string, std::string>> sources = {
      {"data", lines},
      {"tokenizer_json", golden()["files"]["tokenizer.json"]},
      {"tokenizer_config", golden()["files"]["tokenizer_config.json"]}};
  const IngestedFiles d(request, sources);
  ASSERT_TRUE(d.ok()) << d.message();
  const TextSchema& text = d->schema().text;
  EXPECT_EQ(text.tokenizer, TokenizerKind::kPretrained);
  EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{"a", "b"}));
  Tokens expected;
  make_tokenizer(text)->encode("the then", 6, expected);
  ASSERT_LT(expected.size(), 6u);
  expected.resize(6, static_cast<int32_t>(text.padding_id()));
  EXPECT_EQ(copy(d->train().tokens.first(6)), expected);
  const auto cut = d->train().tokens.subspan(6);
  EXPECT_EQ(std::ranges::count(cut, text.padding_id()), 0);

  sources.resize(1);
  const IngestedFiles without(request, sources);
  EXPECT_NE(without.message().find("there is no tokenizer"), std::string::npos)
      << without.message();
}

TEST(DocumentsIngest, BadLinesAreAllNamedWithLineAndMember) {
  const IngestedFiles d = ingest_documents(
      "{\"text\": \"fine\"}\n"
      "{\"messages\": []}\n"
      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", "
      "\"content\": \"b\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
      "\"content\": \" \"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
      "{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}]}\n"
      "{\"messages\": [{\"role\": \"user\"}, {\"content\": [1]}]}\n"
      "{\"messages\": \"a\"}\n"
      "{\"prompt\": \"a\"}\n"
      "{\"prompt\": \"a\", \"completion\": \"\"}\n"
      "{\"prompt\": \"a\", \"completion\": 3}\n"
      "{\"text\": \"a\", \"prompt\": \"b\", \"completion\": \"c\"}\n"
      "{\"conversations\": [{\"from\": \"human\"}]}\n"
      "{\"text\": \"\xff\"}\n");
  ASSERT_FALSE(d.ok());
  EXPECT_EQ(d.error().reason, "DATASET_INVALID");
  const std::vector<std::string> starts = {
      "data: line 2, member 'messages': is empty",
      "data: line 3, member 'messages[0].role': 'assistant' begins the chat, expected system or "
      "user",
      "data: line 4, member 'messages[1].role': 'user' follows a message of the user, expected "
      "assistant",
      "data: line 5, member 'messages[1].content': is an empty answer",
      "data: line 6, member 'messages[0].role': 'user' is the last",
      "data: line 7, member 'messages[0].role': 'human', expected system, user, assistant or tool; "
      "did you mean 'user'?",
      "data: line 8, member 'messages[0].content': is missing",
      "data: line 8, member 'messages[1].content': a list, expected text",
      "data: line 8, member 'messages[1].role': is missing",
      "data: line 9, member 'messages': text, expected a list",
      "data: line 10, member 'completion': is missing beside prompt",
      "data: line 11, member 'completion': is empty",
      "data: line 12, member 'completion': a number, expected text",
      "data: line 13: has prompt or completion and text, expected only one kind",
      "data: line 14: has no document, expected",
      "data: line 15: not UTF-8 at byte"};
  const std::vector<std::string> found = violations_of(d);
  ASSERT_EQ(found.size(), starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    EXPECT_TRUE(found[i].starts_with(starts[i])) << found[i];
  }
}

TEST(DocumentsIngest, OnlySixteenProblemsAreRead) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"text\": 1}\n";
  const IngestedFiles d = ingest_documents(lines);
  ASSERT_FALSE(d.ok());
  EXPECT_EQ(d.error().violations.size(), 16u);
}

TEST(DocumentsIngest, RefusesWhatCannotBeRead) {
  const auto message = [](const std::string& lines, const DocumentsOptions& options = {},
                          const std::string& test = "") {
    return ingest_documents(lines, options, test).message();
  };
  EXPECT_TRUE(message("").starts_with("data: ")) << message("");
  EXPECT_TRUE(message("\n\n").starts_with("data: the file has no documents")) << message("\n\n");
  EXPECT_TRUE(message("[1]\n").starts_with("data: line 1: a value that is not in an object"));
  EXPECT_TRUE(message("{\"text\": \"a\"").starts_with("data: line 1: not JSON"));
  DocumentsOptions options;
  options.test_share = 0.5;
  EXPECT_TRUE(message("{\"text\": \"a\"}\n", options, "{\"text\": \"b\"}\n")
                  .starts_with("documents.test_share: there already is a test set"));
  options = {};
  options.chat_template = "no-such";
  EXPECT_NE(message("{\"text\": \"a\"}\n", options).find("no-such"), std::string::npos);
  options = {};
  options.loss = "some";
  EXPECT_TRUE(message("{\"text\": \"a\"}\n", options).starts_with("documents.loss: 'some'"));
  IngestRequest request;
  request.format = "documents";
  EXPECT_TRUE(IngestedFiles(request, {{"data", "{\"text\": \"a\"}\n"}})
                  .message()
                  .starts_with("sources: there is no tokenizer"));
  EXPECT_FALSE(
      IngestedFiles(request, {{"data", "{\"text\": \"a\"}\n"}, {"tokenizer_json", "{}"}}).ok());
}

TEST(DocumentsIngest, TheTestShareIsDrawnByWholeDocuments) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  DocumentsOptions options;
  options.test_share = 0.25;
  const IngestedFiles d = ingest_documents(lines, options);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->train().rows, 30);
  EXPECT_EQ(d->test().rows, 10);
  EXPECT_EQ(d->schema().documents->test.documents(), 10);
  options.seed = 1;
  const IngestedFiles other = ingest_documents(lines, options);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(copy(d->test().tokens), copy(other->test().tokens));
}

TEST(DocumentsIngest, WarnsOfCopiesAndMembersThatAreNotRead) {
  std::string lines;
  for (int i = 0; i < 10; ++i) {
    lines += "{\"text\": \"document " + std::to_string(i % 8) + "\", \"id\": " + std::to_string(i) +
             ", \"meta\": {\"text\": [1, {\"a\": 2}]}}\n";
  }
  const IngestedFiles d = ingest_documents(lines, {}, "{\"text\": \"document 3\"}\n");
  ASSERT_TRUE(d.ok()) << d.message();
  std::map<std::string, int64_t> found;
  for (const DataWarning& w : d->schema().warnings) found[w.key] = w.count;
  EXPECT_EQ(found, (std::map<std::string, int64_t>{{"DUPLICATE_DOCUMENTS", 2},
                                                   {"MEMBERS_NOT_READ", 2},
                                                   {"TEST_ROWS_IN_TRAINING_SET", 1}}));
}

TEST(DocumentsIngest, ADamagedFolderIsNoticed) {
  const IngestedFiles d = ingest_documents(golden_lines());
  ASSERT_TRUE(d.ok()) << d.message();
  const auto back = parse_schema(schema_text(d->schema()));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->documents, d->schema().documents);
  EXPECT_EQ(back->text.vocabulary_size(), d->schema().text.vocabulary_size());
}

TEST(TextIngest, TextsOfJsonLinesEndWithATokenOfTheirOwn) {
  const std::string lines = R"({"t": "ab"})"
                            "\n"
                            R"({"t": "b"})"
                            "\n"
                            R"({"t": "aab"})"
                            "\n"
                            R"({"t": "a"})"
                            "\n";
  TextOptions options;
  options.field = "t";
  options.end_token = true;
  const IngestedText d(lines, options);
  ASSERT_TRUE(d.ok()) << d.message();
  // 0 is the unknown token, 1 is a, 2 is b.
  EXPECT_EQ(d->schema().text.end_token, 3);
  EXPECT_EQ(d->schema().text.vocabulary_size(), 4);
  EXPECT_EQ(copy(d->train().tokens), (Tokens{1, 2, 3, 2, 3, 1, 1, 2, 3, 1, 3}));
  EXPECT_EQ(token_texts(d->schema().text), (std::vector<std::string>{"", "a", "b", ""}));
  const auto back = parse_schema(schema_text(d->schema()));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->text.end_token, 3);
  // The test set begins with a text.
  options.test_share = 0.4;
  const IngestedText split(lines, options);
  ASSERT_TRUE(split.ok()) << split.message();
  EXPECT_EQ(copy(split->train().tokens), (Tokens{1, 2, 3, 2, 3}));
  EXPECT_EQ(copy(split->test().tokens), (Tokens{1, 1, 2, 3, 1, 3}));
  // Without, they are joined by line breaks.
  options = {};
  options.field = "t";
  const IngestedText joined(lines, options);
  ASSERT_TRUE(joined.ok()) << joined.message();
  EXPECT_EQ(joined->train().rows, 10);
  options.field.clear();
  options.end_token = true;
  EXPECT_TRUE(IngestedText("abc", options).message().starts_with("text.end_token: has no effect"));
}

TEST(TextIngest, BytesEndWithToken256) {
  TextOptions options;
  options.tokenizer = "byte";
  options.field = "t";
  options.end_token = true;
  const IngestedText d("{\"t\": \"a\"}\n{\"t\": \"b\"}\n", options);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->train().tokens), (Tokens{97, 256, 98, 256}));
  EXPECT_EQ(d->schema().text.vocabulary_size(), 257);
}

}  // namespace
}  // namespace trainyard
