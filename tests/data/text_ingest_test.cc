// The tests fail if tokens do not match the vocabulary, text is cut in the middle of a character,
// bytes that are not valid text are accepted, windows contain validation text or exceed the end, or
// the targets of a stream's batches are not the next tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/data/load/loader.h"
#include "src/data/load/split.h"
#include "src/data/load/windows.h"
#include "src/data/text/tokenizer.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

using Tokens = std::vector<int32_t>;

TEST(Utf8, CodePointsRoundTrip) {
  for (const char32_t c :
       {U'\0', U'a', U'\x7f', U'\x80', U'\x7ff', U'\x800', U'\xffff', U'\x10000', U'\x10ffff'}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_FALSE(find_invalid_utf8(text).has_value()) << static_cast<uint32_t>(c);
    std::string_view rest = text;
    EXPECT_EQ(take_code_point(rest), c);
    EXPECT_TRUE(rest.empty());
  }
}

TEST(Utf8, NamesTheFirstByteThatIsWrong) {
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(find_invalid_utf8("\xc3\xa9\xc3"), 2u);      // truncated
  EXPECT_EQ(find_invalid_utf8("a\xed\xa0\x80"), 1u);     // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u);  // past the last code point
  EXPECT_FALSE(find_invalid_utf8("").has_value());
}

TEST(TextIngest, CharactersOfTheTrainingPartAreTheVocabulary) {
  const IngestedText d("ba\xc3\xa9 b", {}, "abc");
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& s = d->schema();
  EXPECT_EQ(s.text.pieces, (std::vector<std::string>{" ", "a", "b", "\xc3\xa9"}));
  EXPECT_EQ(s.text.vocabulary_size(), 5);  // with the unknown token, 0
  EXPECT_EQ(copy(d->train().tokens), (Tokens{3, 2, 4, 1, 3}));
  EXPECT_EQ(copy(d->test().tokens), (Tokens{2, 3, 0}));
  EXPECT_EQ(s.train_rows, 5);
  EXPECT_EQ(s.test_rows, 3);
  const ModelInterface interface = s.interface(4);
  EXPECT_EQ(interface.input, Shape({4}));
  EXPECT_EQ(interface.vocabulary, 5);
  EXPECT_EQ(interface.outputs, 5);
  EXPECT_EQ(interface.target, TargetForm::kNextToken);
  EXPECT_EQ(interface.padding, -1);
}

TEST(TextIngest, BytesAcceptAnyContent) {
  TextOptions options;
  options.tokenizer = "byte";
  const IngestedText d(std::string_view("\xff\0a", 3), options);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->train().tokens), (Tokens{255, 0, 97}));
  EXPECT_EQ(d->schema().text.vocabulary_size(), 256);
}

TEST(TextIngest, TheTestShareIsTheEndAndSplitsNoCharacter) {
  TextOptions options;
  options.test_share = 0.4;
  const IngestedText d("abc\xc3\xa9\xe2\x82\xac", options);  // 5 characters
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().train_rows, 3);
  EXPECT_EQ(copy(d->test().tokens), (Tokens{0, 0}));  // characters of the test part only
}

TEST(TextIngest, ReadsGzipAndDropsAByteOrderMark) {
  const IngestedText plain("hello world");
  const IngestedText packed(gzip("\xef\xbb\xbfhello world"));
  ASSERT_TRUE(plain.ok() && packed.ok()) << packed.message();
  EXPECT_EQ(copy(plain->train().tokens), copy(packed->train().tokens));
}

TEST(TextIngest, RefusesInvalidText) {
  TextOptions words;
  words.tokenizer = "word";
  TextOptions share;
  share.test_share = 0.95;
  TextOptions tail;
  tail.test_share = 0.5;
  const struct {
    std::string_view text;
    TextOptions options;
    std::optional<std::string_view> test;
    std::string_view message;
  } cases[] = {
      {"", {}, std::nullopt, "data: the file is empty"},
      {"\xef\xbb\xbf", {}, std::nullopt, "data: the file is empty"},
      {"abc\xff", {}, std::nullopt, "data: byte 3 ('\\xff') is not UTF-8"},
      {"abc", {}, "d\xc3", "test: byte 1 ('\\xc3') is not UTF-8"},
      {"abc", {}, "", "test: the file is empty"},
      {"a", {}, std::nullopt, "data: 1 token to train on, expected at least 2"},
      {"abcd", words, std::nullopt, "text.tokenizer: 'word', expected char, byte, bpe or unigram"},
      {"abcd", share, std::nullopt, "text.test_share: 0.950000 is out of range"},
      {"abcd", tail, "ab", "text.test_share: there is also a test file"},
  };
  for (const auto& c : cases) {
    const IngestedText d(c.text, c.options, c.test);
    EXPECT_FALSE(d.ok()) << c.message;
    EXPECT_TRUE(d.message().starts_with(c.message)) << d.message();
  }
}

CsvOptions text_options(std::vector<std::string> columns, std::string tokenizer = "word") {
  CsvOptions options = csv_options("label");
  options.text = std::move(columns);
  options.tokenizer = std::move(tokenizer);
  options.max_length = 5;
  return options;
}

constexpr std::string_view kRows =
    "id,title,body,label\n"
    "1,The Cat,\"sat, on the mat\",animal\n"
    "2,,A \xc3\x89toile!,sky\n"
    "3,the,the cat NA,animal\n";

TEST(CsvText, WordsAreOrderedByFrequencyAndRowsArePadded) {
  const IngestedCsv d(text_options({"body", "title"}), kRows);
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& s = d->schema();
  // "the" occurs 4 times, "cat" twice; equal counts are in the order of their bytes
  EXPECT_EQ(s.text.pieces, (std::vector<std::string>{"the", "cat", "a", "mat", "na", "on", "sat",
                                                     "\xc3\xa9toile"}));
  EXPECT_EQ(copy(d->train().tokens), (Tokens{2, 3, 8, 7, 2,     // the cat sat on the
                                             4, 9, 0, 0, 0,     // a étoile
                                             2, 2, 3, 6, 0}));  // the the cat na
  EXPECT_EQ(s.columns.size(), 2u);
  EXPECT_EQ(s.columns[0].missing_count, 1);
  EXPECT_EQ(s.ignored_columns, (std::vector<std::string>{"id"}));
  const ModelInterface interface = s.interface();
  EXPECT_EQ(interface.input, Shape({5}));
  EXPECT_EQ(interface.vocabulary, 10);
  EXPECT_EQ(interface.padding, 0);
  EXPECT_EQ(interface.outputs, 2);
}

TEST(CsvText, VocabularyKeepsTheMostFrequentWords) {
  CsvOptions options = text_options({"title", "body"});
  options.vocabulary_size = 2;
  const IngestedCsv d(options, kRows, "id,title,body,label\n9,dog,the cat,sky\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->train().tokens.first(5)), (Tokens{2, 3, 1, 1, 2}));
  EXPECT_EQ(copy(d->test().tokens), (Tokens{1, 2, 3, 0, 0}));
}

TEST(CsvText, CharactersAndBytes) {
  const IngestedCsv chars(text_options({"title"}, "char"), "title,label\nab,x\nba,y\n");
  ASSERT_TRUE(chars.ok()) << chars.message();
  EXPECT_EQ(copy(chars->train().tokens), (Tokens{2, 3, 0, 0, 0, 3, 2, 0, 0, 0}));
  const IngestedCsv bytes(text_options({"title"}, "byte"), "title,label\nab,x\nba,y\n");
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  EXPECT_EQ(copy(bytes->train().tokens.first(3)), (Tokens{98, 99, 0}));
  EXPECT_EQ(bytes->schema().text.vocabulary_size(), 257);
}

TEST(CsvText, SchemaSurvivesItsJson) {
  const IngestedCsv d(text_options({"title", "body"}), kRows);
  ASSERT_TRUE(d.ok()) << d.message();
  const std::string json = schema_text(d->schema());
  const auto again = parse_schema(json);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(schema_text(*again), json);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"cat\"", "\"the\""},                                // a piece occurs twice
           {"\"tokenizer\":\"word\"", "\"tokenizer\":\"byte\""},  // a byte tokenizer has no pieces
           // pieces of several characters in a character tokenizer
           {"\"tokenizer\":\"word\"", "\"tokenizer\":\"char\""},
           {"\"max_length\":5", "\"max_length\":0"},  // a stream has no columns
           {"\"max_length\":5", "\"max_length\":65537"},
           {"\"kind\":\"class\"", "\"kind\":\"next_token\""}}) {
    std::string damaged = json;
    const size_t at = damaged.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    damaged.replace(at, from.size(), to);
    EXPECT_FALSE(parse_schema(damaged).ok()) << to;
  }
}

TEST(CsvText, RefusesOptionsThatDoNotFit) {
  const auto message = [](auto change, std::string_view rows = kRows) {
    CsvOptions options = text_options({"title"});
    change(options);
    return IngestedCsv(options, rows).message();
  };
  const auto expect = [](const std::string& text, std::string_view start) {
    EXPECT_TRUE(text.starts_with(start)) << text;
  };
  expect(message([](CsvOptions& o) { o.text = {"titel"}; }), "csv.text: 'titel' is not a column");
  expect(message([](CsvOptions& o) { o.text = {"label"}; }), "csv.text: 'label' is the target");
  expect(message([](CsvOptions& o) { o.tokenizer = "wordpiece"; }),
         "csv.tokenizer: 'wordpiece', expected word");
  expect(message([](CsvOptions& o) { o.max_length = 0; }), "csv.max_length: 0 is out of range");
  expect(message([](CsvOptions& o) { o.vocabulary_size = 0; }),
         "csv.vocabulary_size: 0 is out of range");
  expect(message([](CsvOptions& o) { o.ignore = {"id"}; }), "csv.ignore: has no effect");
  expect(message([](CsvOptions& o) { o.image = {1, 1, 2}; }), "csv.image: has no effect");
  expect(message([](CsvOptions&) {}, "title,label\n!!,a\n?,b\n"), "csv: there is no word at all");
  expect(message([](CsvOptions&) {}, "title,label\nab\xff,a\n"),
         "data: row 1 (line 2), column 'title': byte 2 of the text ('\\xff') is not UTF-8");
}

TEST(CsvText, RowsToPredictAreReadLikeTrainingRows) {
  const IngestedCsv d(text_options({"title", "body"}), kRows);
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& s = d->schema();
  const Tokens expected = {2, 3, 1, 0, 0};
  for (const auto& [format, bytes] :
       std::vector<std::pair<std::string, std::string>>{{"csv", "body,title\ndog,The cat\n"},
                                                        {"csv", "The cat,dog\n"},
                                                        {"text", "The cat dog\n"},
                                                        {"text", "The cat dog"},
                                                        {"text", "The cat dog\r\n"}}) {
    const auto rows = parse_raw_rows(s, format, bytes);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->rows, 1) << bytes;
    EXPECT_EQ(rows->tokens,
              format == "csv" && bytes.starts_with("body") ? (Tokens{1, 2, 3, 0, 0}) : expected);
  }
  EXPECT_EQ(parse_raw_rows(s, "text", "good\nbad \xff\n").error().message,
            "rows: line 2: byte 4 ('\\xff') is not UTF-8");
  EXPECT_EQ(parse_raw_rows(s, "text", "").error().message, "rows: there are no rows");
}

TEST(Windows, ValidationIsTheEndAndTrainingExcludesIt) {
  for (const int64_t tokens : {2, 3, 7, 8, 9, 10, 11, 16, 17, 40, 101}) {
    for (const int64_t length : {1, 2, 3, 7, 8}) {
      for (const double share : {0.0, 0.1, 0.5}) {
        DatasetSchema schema;
        schema.kind = DatasetSchema::Kind::kText;
        schema.train_rows = tokens;
        const WindowPlan plan = plan_windows(schema, length, share);
        const int64_t end = plan.validation > 0 ? plan.validation_first : tokens;
        if (plan.validation > 0) {
          EXPECT_EQ(plan.validation_first + plan.validation * length + 1, tokens);
        }
        // The largest shift keeps the last target of the last window within the training part.
        if (plan.train > 0) {
          EXPECT_LE(plan.shift_max + plan.train * length + 1, end) << tokens << " " << length;
        }
        EXPECT_GE(plan.shift_max, 0);
        EXPECT_LT(plan.shift_max, std::max<int64_t>(length, 1));
        // The unused tokens are fewer than those of two windows.
        EXPECT_LT(end - 1 - plan.train * length, 2 * length) << tokens << " " << length;
        if (end - 1 >= length) {
          EXPECT_GE(plan.train, 1);
        }
      }
    }
  }
}

TEST(Windows, BatchesAreTokensAndTheOnesAfterThem) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += static_cast<char>('!' + i);
  const IngestedText d(text);  // the token at position i is i + 1
  ASSERT_TRUE(d.ok()) << d.message();
  const Split split = split_dataset(d->schema(), d->train(), 4, {0.25, 3});
  const Preprocessing p =
      fit_preprocessing(d->schema(), d->train(), split.train, {.context_length = 4});
  EXPECT_EQ(split.validation.size(), 4u);
  Loader::Options options;
  options.batch_size = 2;
  options.seed = 3;
  options.shift_max = split.shift_max;
  options.drop_last = false;  // 9 windows
  ASSERT_EQ(split.shift_max, 3);
  Loader loader(d->schema(), p, d->train(), split.train, options);
  ASSERT_EQ(loader.steps_per_epoch(), 5);
  std::vector<int64_t> shifts;
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    const int64_t shift =
        math::philox_u32(3, stream_of("window"), epoch, 0) % (split.shift_max + 1);
    const auto order = permutation(std::ssize(split.train), 3, stream_of("shuffle"), epoch);
    for (int64_t s = 0; s < loader.steps_per_epoch(); ++s) {
      const Batch& batch = loader.next();
      ASSERT_EQ(batch.tokens.size(), 8u);
      ASSERT_EQ(batch.target_class.size(), 8u);
      EXPECT_TRUE(batch.input.empty() && batch.target_numeric.empty());
      for (size_t i = 0; i < 8; ++i) {
        const auto place = static_cast<size_t>(s) * 2 + i / 4;
        const int64_t window = order[place % order.size()];
        const int64_t first = split.train[static_cast<size_t>(window)] + shift;
        EXPECT_EQ(batch.tokens[i], first + static_cast<int64_t>(i % 4) + 1);
        EXPECT_EQ(batch.target_class[i], batch.tokens[i] + 1);
        EXPECT_LT(batch.target_class[i], split.validation.front() + 1);
      }
    }
    shifts.push_back(shift);
  }
  std::ranges::sort(shifts);
  EXPECT_GT(std::unique(shifts.begin(), shifts.end()) - shifts.begin(), 1);
}

TEST(Windows, PreprocessingKeepsTheContextLength) {
  const IngestedText d("hello");
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<int64_t> rows = {0};
  const Preprocessing p = fit_preprocessing(d->schema(), d->train(), rows, {.context_length = 3});
  const auto again = Preprocessing::from_json(p.to_json());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, p);
  EXPECT_TRUE(p.fits(d->schema()));
  EXPECT_FALSE(Preprocessing{}.fits(d->schema()));
}

}  // namespace
}  // namespace trainyard
