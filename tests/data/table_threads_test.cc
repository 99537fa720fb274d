// The tests fail if a dataset or a refusal depends on the number of threads that read a table or on
// the block boundaries: if records are split at a line break in quotes, rows, category codes or
// columns of JSON lines are in another order, another one of several errors is reported, or a
// header or byte order mark is read twice.
#include <gtest/gtest.h>

#include <algorithm>

#include <charconv>
#include <cstring>

#include "kernels/math/philox.h"
#include "src/data/limits.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/record_blocks.h"
#include "src/data/typed_dataset.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

template <typename T>
std::string bytes_as_text(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Returns the complete result of a read, or its complete error, as comparable texts.
std::vector<std::string> outcome(const Result<TypedDataset>& read) {
  if (!read.ok()) {
    std::vector<std::string> said = {read.error().message, read.error().reason};
    for (const FieldViolation& v : read.error().violations) said.push_back(v.field + v.description);
    return said;
  }
  std::vector<std::string> made = {schema_text(read->schema)};
  for (const TypedRows* rows : {&read->train, &read->test}) {
    made.push_back(std::to_string(rows->rows));
    made.push_back(bytes_as_text(rows->numeric));
    made.push_back(bytes_as_text(rows->category));
    made.push_back(bytes_as_text(rows->image_u8));
    made.push_back(bytes_as_text(rows->image_f32));
    made.push_back(bytes_as_text(rows->image_sums));
    made.push_back(bytes_as_text(rows->tokens));
    made.push_back(bytes_as_text(rows->target_class));
    made.push_back(bytes_as_text(rows->target_numeric));
  }
  return made;
}

/// Reads the files row by row and with threads, and expects equal results. Returns the error
/// message,
/// "" if the files were accepted.
std::string expect_same(const CsvOptions& options, std::string_view train,
                        std::string_view test = {}) {
  const TemporaryFolder folder;
  const auto train_path = folder.write("train", train);
  const auto test_path = test.empty() ? std::filesystem::path() : folder.write("test", test);
  const auto read = [&](int count, size_t block_bytes) {
    return read_csv_dataset(options, train_path, test_path, {count, block_bytes});
  };
  const Result<TypedDataset> expected = read(1, 0);
  for (const int count : {1, 2, 3, 7}) {
    for (const size_t block_bytes : {1, 7, 61, 1000, 1 << 20}) {
      EXPECT_EQ(outcome(read(count, block_bytes)), outcome(expected))
          << count << " threads, blocks of " << block_bytes;
    }
  }
  return expected.ok() ? "" : expected.error().message;
}

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint32_t below(uint32_t bound) {
    return math::philox_u32(seed_, /*stream=*/7, /*step=*/0, count_++) % bound;
  }
  const char* one_of(std::initializer_list<const char*> all) {
    return all.begin()[below(static_cast<uint32_t>(all.size()))];
  }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

/// Returns three columns and a target, with all variants of syntax that a file may contain.
std::string random_csv(Random& random, int rows) {
  std::string text = random.one_of({"", "\xef\xbb\xbf", "\n\r\n"});
  text += "number,name,note,y\n";
  for (int i = 0; i < rows; ++i) {
    text += random.one_of({"1", "-2.5", " 12345.678 ", "", "NA", "1e3", "0.1234567890123", "+7",
                           "\"8\"", "99999999"});
    text += ',';
    text += random.one_of({"red", "green", " blue ", "\"light, blue\"", "\"a \"\"dark\"\" one\"",
                           "\"two\nlines\"", "", "7"});
    text += ',';
    text += random.one_of({"x", "\"\r\n\"", "\"\"", "\"\n\n,\"", "long note without an end"});
    text += ',';
    text += random.one_of({"yes", "no", "\"maybe\"", "\"with\nbreak\""});
    text += random.one_of({"\n", "\r\n", "\n\n", "\n \r\n"});
  }
  if (random.below(2) == 0) {
    while (text.back() == '\n' || text.back() == '\r' || text.back() == ' ') text.pop_back();
  }
  return text;
}

TEST(TableThreads, ReadAnyTableLikeASingleThread) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const std::string text = random_csv(random, 60);
    EXPECT_EQ(expect_same(csv_options("y"), text), "") << text;
  }
  Random random(99);
  const std::string train = random_csv(random, 200);
  EXPECT_EQ(expect_same(csv_options("y"), gzip(train), train), "");
}

TEST(TableThreads, ReadTablesOfEveryKind) {
  CsvOptions options = csv_options("c1");
  options.header = false;
  EXPECT_EQ(expect_same(options, "\n1,a\n2,b\n\n3,a\n4,\"b\"\n"), "");
  options = csv_options("y");
  options.image = {1, 1, 2};
  EXPECT_EQ(expect_same(options, "p,q,y\n0,255,0\n1,2,1\n3,4,0\n"), "");
  EXPECT_EQ(expect_same(options, "p,q,y\n0,25.5,0\n1,2,1\n3,4,0\n"), "");
  options = csv_options("y");
  options.text = {"a", "b"};
  options.max_length = 3;
  EXPECT_EQ(expect_same(options, "a,b,y\nthe cat,sat,0\nthe dog,\"ran\nfar\",1\n,the end,0\n"), "");
  options = csv_options("y");
  options.date = {"when"};
  EXPECT_EQ(expect_same(options, "when,y\n2026-01-31,1\n,2\n2026-01-31T12:30,3.5\n"), "");
}

TEST(TableThreads, ReadJsonLinesLikeASingleThread) {
  CsvOptions options = csv_options("y");
  options.json_lines = true;
  std::string text = "\xef\xbb\xbf";
  Random random(5);
  for (int i = 0; i < 100; ++i) {
    text += "{\"y\": " + std::to_string(random.below(3));
    // Lines have different members, so the member that a block sees first depends on where the
    // block begins.
    if (random.below(3) > 0) text += ", \"a\": " + std::to_string(random.below(100));
    if (random.below(20) == 0) text += R"(, "rare": "x")";
    if (i > 50 && random.below(4) == 0) text += R"(, "late\u0021": 2.5)";
    text += random.one_of({"}\n", "}\r\n", "} \n\n"});
  }
  EXPECT_EQ(expect_same(options, text), "");
  EXPECT_EQ(expect_same(options, text + "\xef\xbb\xbf{\"y\": 1}\n"), "");
  EXPECT_NE(expect_same(options, text + "\x1f\x8b\n" + text), "");
  EXPECT_NE(expect_same(options, text + "{\"y\": [1]}\n{\"y\": {}}\n"), "");
}

TEST(TableThreads, QuotesWithinFieldsAndLinesThatEndByCrGiveTheSameTable) {
  std::string text = "x,k,y\n";
  for (int i = 0; i < 200; ++i) {
    const std::string number = std::to_string(i);
    text += number + ",5\" nail,a\n" + number + ",\"b\n,\"\"c\",b\n" + number + ",2\"\"x\",a\n";
  }
  EXPECT_EQ(expect_same(csv_options("y"), text), "");
  std::ranges::replace(text, '\n', '\r');
  EXPECT_EQ(expect_same(csv_options("y"), text), "");
}

TEST(TableThreads, ReportTheFirstBadRow) {
  const std::string good = "1,\"a\nb\",0\n2,c,1\n";
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += good;
  const auto message = [&](const std::string& bad) {
    return expect_same(csv_options("y"),
                       "x,k,y\n" + rows + bad + rows + "1,2\n" + rows + "\"open\n");
  };
  EXPECT_EQ(
      message("1\n"),
      "data: row 81 (line 122): 1 field, expected 3 as in the header (the first of 3 problems)");
  EXPECT_EQ(message("1,\"a\"b,2\n").substr(0, 14), "data: line 122");
  EXPECT_EQ(message(std::string("1,\0,2\n", 6)).substr(0, 14), "data: line 122");
  const auto cell = [&](const std::string& bad) {
    return expect_same(csv_options("y"), "x,k,y\n" + rows + bad + rows + bad + rows);
  };
  EXPECT_EQ(cell("one,a,0\n").substr(0, 37), "data: row 81 (line 122), column 'x': ");
  EXPECT_EQ(cell("1,a,\n").substr(0, 37), "data: row 81 (line 122), column 'y': ");
  EXPECT_NE(expect_same(csv_options("y"), ""), "");
  EXPECT_NE(expect_same(csv_options("y"), "x,y\n"), "");
  EXPECT_NE(expect_same(csv_options("z"), "x,y\n1,2\n"), "");
  EXPECT_NE(expect_same(csv_options("y"), "x,x,y\n1,2,3\n"), "");
  EXPECT_NE(expect_same(csv_options("y"), "x,y\n1,a\n2,b\n", "x,y\n1,a\n2,c\n"), "");
}

TEST(TableThreads, ReadATargetWithAUnit) {
  CsvOptions options = csv_options("y");
  options.numbers = {"y"};
  const std::string refused = expect_same(options, "x,y\n1,5 kg\n2,5.0 kg\n3,5\n");
  EXPECT_NE(refused.find("has the value 5 in all rows"), std::string::npos) << refused;
  EXPECT_EQ(expect_same(options, "x,y\n1,5 kg\n2,6 kg\n3,(7)\n"), "");
}

TEST(TableThreads, CountCategoriesOfAllBlocksTogether) {
  std::string text = "k,y\n";
  for (int64_t i = 0; i <= kCategoriesMax; ++i) text += "k" + std::to_string(i) + ",1\n";
  EXPECT_EQ(expect_same(csv_options("y"), text),
            "data: row 10001 (line 10002), column 'k': more than 10000 different values; leave "
            "the column out with `ignore`");
}

TEST(RecordBlocks, EndAtRecordsAndCoverEveryByteOnce) {
  const std::string text = "skip1,\"2\n3\"\n4,5\n\"\n\"\"\n\",6\n7";
  for (size_t size = 1; size < 30; ++size) {
    const auto source = open_plain_source(text);
    RecordBlocks blocks(*source, 4, /*quotes=*/true, size);
    RecordBlock block;
    std::string all;
    for (int64_t index = 0; blocks.next(block).value(); ++index) {
      EXPECT_EQ(block.index, index);
      all.append(block.bytes.data(), block.size);
      const std::string_view so_far(all);
      EXPECT_TRUE(so_far == text.substr(4) || so_far.ends_with("3\"\n") ||
                  so_far.ends_with("4,5\n") || so_far.ends_with(",6\n"))
          << size << ": " << all;
    }
    EXPECT_EQ(all, text.substr(4)) << size;
  }
}

TEST(CellReader, ReadsShortNumbersLikeFromChars) {
  const CellReader cells({"NA"});
  Random random(3);
  for (int i = 0; i < 200'000; ++i) {
    std::string text;
    const uint32_t size = 1 + random.below(10);
    for (uint32_t c = 0; c < size; ++c) {
      text += "0123456789.-"[random.below(c == 0 ? 12 : 11)];
      if (random.below(200) == 0) text += "/:e+x \xb0"[random.below(7)];
    }
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const Cell cell = cells.read(text);
    const bool number = error == std::errc() && stop == text.data() + text.size();
    // from_chars accepts no plus sign, and a cell refuses numbers that are too large or too small
    // for 32 bits.
    if (text.front() == '+' || text.find('e') != text.npos) continue;
    ASSERT_EQ(cell.is_number(), number) << text;
    if (number) {
      ASSERT_EQ(std::memcmp(&cell.value, &value, sizeof value), 0) << text;
    }
  }
}

}  // namespace
}  // namespace trainyard
