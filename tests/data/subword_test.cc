// The tests fail if text is split differently from SentencePiece, decoding does not restore the
// text, a model depends on more than the text, or a damaged model is accepted.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/base64.h"
#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/data/align.h"
#include "src/data/preprocessing.h"
#include "src/data/text/subword_model.h"
#include "src/data/text/subword_training.h"
#include "src/data/text/tokenizer.h"
#include "tests/data/data_samples.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Tokens = std::vector<int32_t>;

const nlohmann::json& golden() {
  static const nlohmann::json content = [] {
    std::ifstream in(testing::source_path("tests/golden/subword.json"));
    return nlohmann::json::parse(in);
  }();
  return content;
}

TextSchema schema_of(const nlohmann::json& c, int64_t max_length) {
  TextSchema schema;
  schema.tokenizer = *find_tokenizer(c["kind"].get<std::string>());
  schema.max_length = max_length;
  const Status s = set_subword_model(*base64_decode(c["model"].get<std::string>()), schema);
  EXPECT_TRUE(s.ok()) << s.error().message;
  return schema;
}

Tokens encode(const TextSchema& schema, std::string_view text, int64_t tokens_max = 1 << 30) {
  Tokens tokens;
  make_tokenizer(schema)->encode(text, tokens_max, tokens);
  return tokens;
}

std::string decode(const TextSchema& schema, std::span<const int32_t> tokens) {
  const std::vector<std::string> texts = token_texts(schema);
  std::string text;
  for (const int32_t t : tokens) text += texts[static_cast<size_t>(t)];
  return text;
}

bool can_train() {
  const char* program = std::getenv("TRAINYARD_TOKENIZER_PROGRAM");
  return program != nullptr && std::filesystem::exists(program);
}
#define NEEDS_TRAINING() \
  if (!can_train()) GTEST_SKIP() << "built without SentencePiece"

TEST(Base64, AcceptsOnlyTheStandardEncoding) {
  for (const auto& [bytes, text] :
       std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                        {"f", "Zg=="},
                                                        {"fo", "Zm8="},
                                                        {"foo", "Zm9v"},
                                                        {"foob", "Zm9vYg=="},
                                                        {std::string("\0\xff\xfe", 3), "AP/+"}}) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text), bytes);
  }
  for (const char* bad :
       {"Zg=", "Zg", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm9 ", "Zm\n="}) {
    EXPECT_FALSE(base64_decode(bad).has_value()) << bad;
  }
}

TEST(Subwords, MatchSentencePiece) {
  const nlohmann::json& g = golden();
  for (const nlohmann::json& c : g["cases"]) {
    for (const int64_t max_length : {0, 4096}) {
      const TextSchema schema = schema_of(c, max_length);
      const int32_t shift = max_length == 0 ? 0 : 1;  // token 0 is the padding
      EXPECT_EQ(schema.vocabulary_size(), c["pieces"].get<int64_t>() + shift);
      for (size_t i = 0; i < g["texts"].size(); ++i) {
        const std::string text = g["texts"][i];
        Tokens expected = c["ids"][i].get<Tokens>();
        for (int32_t& id : expected) id += shift;
        EXPECT_EQ(encode(schema, text), expected) << c["kind"] << ": " << text;
        EXPECT_EQ(decode(schema, expected), text);
      }
    }
  }
}

TEST(Subwords, EveryTextRoundTrips) {
  for (const nlohmann::json& c : golden()["cases"]) {
    const TextSchema schema = schema_of(c, 0);
    for (const std::string text : {"\xe2\x96\x81 a blank\xe2\x96\x81that is none \xe2\x96\x85",
                                   "\xef\xbf\xbf\xef\xb7\x90", "<unk><0x20>"}) {
      EXPECT_EQ(decode(schema, encode(schema, text)), text);
    }
    for (uint64_t round = 0; round < 200; ++round) {  // code points of 1 to 4 bytes
      std::string text;
      for (uint64_t i = 0; i < 60; ++i) {
        const uint32_t bits = math::philox_u32(1, 2, round, i);
        const uint32_t limit = bits % 3 == 0 ? 0x80 : bits % 3 == 1 ? 0x3000 : 0x110000;
        const char32_t code_point = (bits >> 2) % limit;
        if (code_point < 0xd800 || code_point > 0xdfff) append_utf8(text, code_point);
      }
      EXPECT_EQ(decode(schema, encode(schema, text)), text);
    }
  }
}

TEST(Subwords, OfALongStretchAndUpToALimit) {
  for (const nlohmann::json& c : golden()["cases"]) {
    const TextSchema schema = schema_of(c, 0);
    std::string text;  // text of pieces that may be joined at every position
    while (text.size() < 100'000) text += "thetower";
    const Tokens all = encode(schema, text);
    EXPECT_EQ(decode(schema, all), text);
    EXPECT_LT(all.size(), text.size() * 3 / 4);
    const Tokens some = encode(schema, text, 1000);
    EXPECT_EQ(some, Tokens(all.begin(), all.begin() + 1000));
    EXPECT_TRUE(encode(schema, "the tower", 0).empty());
    EXPECT_TRUE(encode(schema, "").empty());
  }
}

TEST(Subwords, DamagedModelsAreRefusedOrHarmless) {
  for (const nlohmann::json& c : golden()["cases"]) {
    const TokenizerKind kind = *find_tokenizer(c["kind"].get<std::string>());
    const std::string model = *base64_decode(c["model"].get<std::string>());
    for (size_t size = 0; size < model.size(); size += 61) {
      EXPECT_FALSE(read_subword_model(kind, model.substr(0, size)).ok()) << size;
    }
    int64_t refused = 0;
    for (size_t at = 0; at < model.size(); at += 7) {
      for (const char mask : {'\x01', '\x80'}) {
        std::string damaged = model;
        damaged[at] = static_cast<char>(damaged[at] ^ mask);
        TextSchema schema;
        schema.tokenizer = kind;
        if (Status s = set_subword_model(damaged, schema); !s.ok()) {
          EXPECT_EQ(s.error().reason, "TOKENIZER_INVALID");
          ++refused;
        } else {
          for (const int32_t token : encode(schema, "the towers \xc3\xa9\n")) {
            EXPECT_LT(token, schema.vocabulary_size());
          }
        }
      }
    }
    EXPECT_GT(refused, std::ssize(model) / 14);
    const TokenizerKind other =
        kind == TokenizerKind::kBpe ? TokenizerKind::kUnigram : TokenizerKind::kBpe;
    EXPECT_EQ(read_subword_model(other, model).error().message,
              "not a valid tokenizer model: it is of a different kind");
  }
}

TEST(SubwordSample, IsBoundedEvenlySpreadAndDependsOnlyOnTheText) {
  SentenceSample a, b;
  std::string line(1000, 'x');
  for (int i = 0; i < 40'000; ++i) {  // 40 MB in total
    line.replace(0, 8, std::to_string(10'000'000 + i));
    a.add(line);
    b.add(line + "\n\n");
  }
  EXPECT_EQ(a.sentences(), b.sentences());
  EXPECT_LE(a.sentences().size(), size_t{16} << 20);
  EXPECT_GT(a.sentences().size(), size_t{8} << 20);
  EXPECT_EQ(a.sentences().substr(0, 8), "10000000");
  EXPECT_NE(a.sentences().find("\n10039996"), std::string::npos);
  SentenceSample c;
  c.add("one\ttwo\xe2\x96\x81three\n" + std::string(5000, 'y'));
  EXPECT_EQ(c.sentences(),
            "one\ntwo\nthree\n" + std::string(4096, 'y') + "\n" + std::string(904, 'y') + "\n");
}

TextOptions options_of(const std::string& tokenizer, int64_t pieces) {
  TextOptions options;
  options.tokenizer = tokenizer;
  options.vocabulary_size = pieces;
  return options;
}

std::string training_text() {
  std::string text;
  for (const nlohmann::json& sentence : golden()["sentences"]) {
    text += sentence.get<std::string>() + "\n\t";
  }
  return text;
}

TEST(SubwordIngest, AStreamRoundTripsAndTheModelDependsOnlyOnTheText) {
  NEEDS_TRAINING();
  const std::string text = training_text();
  for (const std::string kind : {"bpe", "unigram"}) {
    TextOptions options = options_of(kind, 420);
    options.test_share = 0.1;
    const IngestedText a(text, options), b(text, options);
    ASSERT_TRUE(a.ok() && b.ok()) << a.message();
    const TextSchema& schema = a->schema().text;
    EXPECT_FALSE(schema.model.empty());
    EXPECT_EQ(schema.model, b->schema().text.model);
    EXPECT_LE(schema.vocabulary_size(), 420);
    EXPECT_GT(schema.vocabulary_size(), 380);
    EXPECT_EQ(decode(schema, a->train().tokens) + decode(schema, a->test().tokens), text);
    EXPECT_LT(a->schema().train_rows, std::ssize(text) / 2);
    const std::string json = schema_text(a->schema());
    const auto again = parse_schema(json);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->text.pieces, schema.pieces);
    EXPECT_EQ(schema_text(*again), json);
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"\"model\":\"", "\"model\":\"!"},
             {"\"model\":\"", "\"model\":\"AAAA"},
             {"\"model\":", "\"modal\":"},
             {"\"tokenizer\":\"" + kind + "\"",
              kind == "bpe" ? "\"tokenizer\":\"unigram\"" : "\"tokenizer\":\"bpe\""}}) {
      std::string damaged = json;
      damaged.replace(damaged.find(from), from.size(), to);
      EXPECT_FALSE(parse_schema(damaged).ok()) << to;
    }
  }
}

TEST(SubwordIngest, RowsArePaddedAndRowsToPredictAreReadAlike) {
  NEEDS_TRAINING();
  CsvOptions options = csv_options("label");
  options.text = {"title"};
  options.tokenizer = "unigram";
  options.vocabulary_size = 300;
  options.max_length = 8;
  const IngestedCsv d(options, "title,label\nthe cat sat,a\nthe dog sat down on the old mat,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const TextSchema& text = d->schema().text;
  const auto tokens = d->train().tokens;
  ASSERT_EQ(tokens.size(), 16u);
  EXPECT_EQ(decode(text, tokens.first(8)), "the cat sat");
  EXPECT_EQ(tokens[7], 0);
  EXPECT_TRUE(
      std::string("the dog sat down on the old mat").starts_with(decode(text, tokens.last(8))));
  const auto rows = parse_raw_rows(d->schema(), "text", "the cat sat\n\xf0\x9f\x98\x80\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(Tokens(rows->tokens.begin(), rows->tokens.begin() + 8),
            Tokens(tokens.begin(), tokens.begin() + 8));
  EXPECT_EQ(decode(text, std::span(rows->tokens).last(8)), "\xf0\x9f\x98\x80");
}

TEST(SubwordIngest, ADatasetWithAnotherVocabularyIsTokenizedAgain) {
  NEEDS_TRAINING();
  const std::string text = training_text();
  const std::string other = "The wind blows on the hill.\nNobody saw the tower.\n";
  const IngestedText model(text, options_of("bpe", 420)), data(other, options_of("bpe", 300));
  ASSERT_TRUE(model.ok() && data.ok()) << model.message() << data.message();
  const auto aligned = AlignedRows::align(model->schema(), data->schema(), data->train());
  ASSERT_TRUE(aligned.ok()) << aligned.error().message;
  const auto tokens = aligned->view().tokens;
  EXPECT_EQ(Tokens(tokens.begin(), tokens.end()), encode(model->schema().text, other));
  EXPECT_EQ(aligned->view().rows, std::ssize(tokens));
}

TEST(SubwordIngest, RefusesAVocabularyThatCannotBeLearned) {
  NEEDS_TRAINING();
  const auto message = [](std::string_view text, TextOptions options) {
    return IngestedText(text, options).message();
  };
  EXPECT_EQ(
      message(training_text(), options_of("bpe", 260)).find("text.vocabulary_size: 260 is too few"),
      0u);
  EXPECT_EQ(message("abc", options_of("bpe", 0)),
            "text.vocabulary_size: 0 is out of range, expected 1 to 1048576");
  EXPECT_EQ(message("\n\n\n", options_of("bpe", 400)), "text: there is no text at all");
  EXPECT_EQ(message("abc\xff", options_of("unigram", 400)).find("data: byte 3"), 0u);
  const std::string program = std::getenv("TRAINYARD_TOKENIZER_PROGRAM");
  ::setenv("TRAINYARD_TOKENIZER_PROGRAM", "/nowhere/trainyard-tokenizer", 1);
  const std::string missing = message("abc abc", options_of("unigram", 400));
  ::setenv("TRAINYARD_TOKENIZER_PROGRAM", program.c_str(), 1);
  EXPECT_EQ(
      missing.find("text.tokenizer: unigram needs /nowhere/trainyard-tokenizer, which is missing"),
      0u)
      << missing;
}

}  // namespace
}  // namespace trainyard
