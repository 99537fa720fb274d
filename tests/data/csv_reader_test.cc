// The tests fail if fields are split or joined wrongly (also in a record that spans the end of the
// buffer), input without a meaning in RFC 4180 is accepted, or memory is unbounded.
#include "src/data/table/csv_reader.h"

#include <gtest/gtest.h>

#include "kernels/math/philox.h"
#include "src/data/limits.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

using Records = std::vector<std::vector<std::string>>;

Result<Records> read_records(std::string_view text, char delimiter = ',') {
  const auto source = open_memory_source(text, "data");
  CsvReader reader(*source, delimiter, "data");
  Records records;
  std::vector<std::string_view> fields;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, reader.next(fields));
    if (!more) return records;
    records.emplace_back(fields.begin(), fields.end());
  }
}

TEST(CsvReader, ReadsRecordsOfFiles) {
  const Records expected = {{"a", "b"}, {"1", "2"}};
  for (const char* text : {"a,b\n1,2\n", "a,b\n1,2", "a,b\r\n1,2\r\n", "a,b\r\r\n1,2\r\r\n",
                           "\xef\xbb\xbf"
                           "a,b\n1,2\n",
                           "\n\na,b\n\n\r\n1,2\n\n", " a , b\t\n1 ,\t2",
                           "\"a\",\"b\"\r\n\"1\" , \"2\"", "a,b\r\n1,2\r"}) {
    const auto records = read_records(text);
    ASSERT_TRUE(records.ok()) << records.error().message;
    EXPECT_EQ(*records, expected) << text;
  }
  EXPECT_EQ(read_records("").value(), Records{});
  EXPECT_EQ(read_records("\n\r\n  \n").value(), Records{});
  EXPECT_EQ(read_records(",\n").value(), (Records{{"", ""}}));
  EXPECT_EQ(read_records("a,,").value(), (Records{{"a", "", ""}}));
  EXPECT_EQ(read_records("\"\"\n").value(), (Records{{""}}));
  EXPECT_EQ(read_records("\"a\"\"b\",\" x,\ny\r\n\"\n").value(), (Records{{"a\"b", " x,\ny\r\n"}}));
  EXPECT_EQ(read_records("\"\"\"\"\n").value(), (Records{{"\""}}));
  EXPECT_EQ(read_records("a\tb\t\n", '\t').value(), (Records{{"a", "b", ""}}));
  EXPECT_EQ(read_records("a;1,5\n", ';').value(), (Records{{"a", "1,5"}}));
}

TEST(CsvReader, RefusesMalformedRecordsWithTheirLine) {
  struct Case {
    std::string text;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"a,b\n1,\"2\n3,4\n", "data: line 2: a quote is opened and never closed"},
      {"a,b\n\"1\"x,2\n", "data: line 2: field 1 continues after its closing quote"},
      {"a,b\n\"\"x\"\",2\n",
       "data: line 2: field 1 begins with two quotes; if each quote of the file is doubled, undo "
       "this: sed 's/\"\"/\"/g' FILE > undoubled.csv"},
      {"a,b\n1,\"say \\\"x\\\"\"\n",
       "data: line 2: field 2 has a backslash before a quote; inner quotes are doubled, not "
       "escaped: sed 's/\\\\\"/\"\"/g' FILE > doubled.csv"},
      {"\xef\xbb\xbfsep=;\r\na,b\r\n",
       "data: line 1: the line says that the fields are separated by ';', expected delimiter: "
       "\";\""},
      {std::string("a,b\n1,\0", 7),
       "data: line 2: field 2 contains a zero byte, expected UTF-8 text"},
      {std::string("a,\"\0\"\n", 6),
       "data: line 1: a quoted field contains a zero byte, expected "
       "UTF-8 text"},
      {std::string("\xff\xfe"
                   "a\0,\0",
                   6),
       "data: this is text in UTF-16, expected text in UTF-8. Convert it to UTF-8: "
       "iconv -f UTF-16 -t UTF-8 'FILE' > 'FILE.utf8'"},
      {std::string("PAR1\x15\0", 6),
       "data: this is a Parquet file, expected text in UTF-8. Convert it to CSV: python3 -c "
       "\"import pandas; pandas.read_parquet('FILE').to_csv('FILE.csv', index=False)\", or upload "
       "it "
       "from Python: trainyard.upload('FILE', target='COLUMN')"},
      {std::string("PK\x03\x04\x14\0", 6),
       "data: this is a ZIP archive, as Excel's files are, expected text in UTF-8. Unpack it: "
       "unzip "
       "'FILE'. If it is an Excel file, convert it to CSV: python3 -c \"import pandas; "
       "pandas.read_excel('FILE').to_csv('FILE.csv', index=False)\""},
  };
  for (const Case& c : cases) {
    const auto records = read_records(c.text);
    ASSERT_FALSE(records.ok()) << c.text;
    EXPECT_EQ(records.error().message, c.message);
    EXPECT_EQ(records.error().reason, "DATASET_INVALID");
  }
}

TEST(CsvReader, AQuoteWithinAFieldIsText) {
  EXPECT_EQ(read_records("a 3\" nail,5\" x 2\"\nb\"\"c,\"d\"\n").value(),
            (Records{{"a 3\" nail", "5\" x 2\""}, {"b\"\"c", "d"}}));
  // A part of a file may have been cut within a field.
  std::string part = "a,2\"\n";
  part.resize(part.size() + kCsvPadding);
  CsvReader reader({part.begin(), part.end()}, part.size() - kCsvPadding, ',', "data");
  std::vector<std::string_view> fields;
  EXPECT_EQ(reader.next(fields).error().message,
            "data: line 1: field 2 contains a quote, expected the whole field in quotes and inner "
            "quotes doubled");
}

TEST(CsvReader, LinesMayEndByCrAlone) {
  const Records expected = {{"a", "b"}, {"1", "x\ny"}, {"2", ""}};
  EXPECT_EQ(read_records("a,b\r1,\"x\ry\"\r\r2,").value(), expected);
  EXPECT_EQ(read_records("\xef\xbb\xbf"
                         "a,b\r1,\"x\ry\"\r2,\r")
                .value(),
            expected);
  EXPECT_EQ(read_records("a,\"b\nc\"\r1,\"x\ny\"\r").value(),
            (Records{{"a", "b\nc"}, {"1", "x\ny"}}))
      << "LF within quotes";
  EXPECT_EQ(read_records("a,\"b\rc\"\r\n1,2\r\n").value(), (Records{{"a", "b\rc"}, {"1", "2"}}))
      << "CR within quotes";
  const auto source = open_memory_source("a,b\r1,2\r", "data");
  CsvReader reader(*source, ',', "data");
  std::vector<std::string_view> fields;
  ASSERT_TRUE(reader.next(fields).ok());
  EXPECT_TRUE(reader.ends_by_cr());
  std::string long_text = "a,b\r";
  while (long_text.size() < (size_t{3} << 20)) long_text += "12345,\"6\"\r";
  const Records many = read_records(long_text).value();
  EXPECT_EQ(many.size(), 1 + (long_text.size() - 4) / 10);
  EXPECT_EQ(many.back(), (std::vector<std::string>{"12345", "6"}));
}

TEST(CsvReader, ExcelsSeparatorLineIsSkipped) {
  for (const char* text : {"sep=;\na;b\n1;2\n", "SEP=;\r\na;b\r\n1;2\r\n", "\"sep=;\"\na;b\n1;2",
                           "\xef\xbb\xbfsep=;\na;b\n1;2\n", "sep=;\ra;b\r1;2\r"}) {
    EXPECT_EQ(read_records(text, ';').value(), (Records{{"a", "b"}, {"1", "2"}})) << text;
  }
  const auto source = open_memory_source("sep=;\na;b\n1;2\n", "data");
  CsvReader reader(*source, ';', "data");
  std::vector<std::string_view> fields;
  ASSERT_TRUE(reader.next(fields).ok());
  EXPECT_EQ(reader.line(), 2);
  EXPECT_EQ(reader.record_begin(), 6);
  // A column may be named "sep".
  EXPECT_EQ(read_records("sep=,b\n1,2\n").value(), (Records{{"sep=", "b"}, {"1", "2"}}));
}

TEST(CsvReader, TextThatBeginsLikeAnotherFormatIsRead) {
  EXPECT_EQ(read_records("PAR1,ORC\n1,2\n").value(), (Records{{"PAR1", "ORC"}, {"1", "2"}}));
}

TEST(CsvReader, LineNumbersCountBreaksInsideQuotes) {
  const std::string text = "a\n\"1\n2\n3\"\n\n4\n";
  const auto source = open_memory_source(text, "data");
  CsvReader reader(*source, ',', "data");
  std::vector<std::string_view> fields;
  std::vector<int64_t> lines;
  while (reader.next(fields).value()) lines.push_back(reader.line());
  EXPECT_EQ(lines, (std::vector<int64_t>{1, 2, 6}));
}

/// Splits text by the same rules in a slow and simple way, character by character.
Records read_plainly(const std::string& text) {
  Records records(1);
  std::string field;
  bool quoted = false;
  const auto end_field = [&] {
    records.back().push_back(std::move(field));
    field.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      field += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      end_field();
    } else if (!quoted && c == '\n') {
      end_field();
      records.emplace_back();
    } else {
      field += c;
    }
  }
  records.pop_back();
  return records;
}

TEST(CsvReader, RecordsAcrossBufferEndsAreWhole) {
  const uint64_t seed = 20240607;
  std::string text;
  for (uint64_t i = 0; text.size() < (size_t{5} << 20) / 2; ++i) {
    const uint32_t r = math::philox_u32(seed, 1, 0, i);
    const size_t length = r % 997 == 0 ? 300000 : r % 37;
    const std::string body(length, static_cast<char>('a' + r % 26));
    text += r % 3 == 0 ? "\"" + body + "\"\",\n\"\"" + body + "\"" : body + "x";
    text += r % 5 == 0 ? '\n' : ',';
  }
  text += "end\n";
  const auto records = read_records(text);
  ASSERT_TRUE(records.ok()) << records.error().message;
  EXPECT_TRUE(*records == read_plainly(text));  // too large to print
}

TEST(CsvReader, LineAndColumnCountAreBounded) {
  const std::string long_line = "a,b\n1," + std::string(kLineBytesMax + 100, '7') + "\n";
  const auto too_long = read_records(long_line);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().message,
            "data: line 2: longer than 16 MiB, or a quote opened here is not closed");
  const std::string wide(static_cast<size_t>(kColumnsMax) + 5, ',');
  EXPECT_EQ(read_records(wide).error().message, "data: line 1: more than 262144 fields");
  // A line of 1 GB is only 1 MB of gzip; it is refused after 16 MiB.
  const std::string bomb = gzip(std::string(size_t{64} << 20, '1'));
  EXPECT_LT(bomb.size(), size_t{100000});
  EXPECT_FALSE(read_records(bomb).ok());
}

TEST(CsvReader, NoCutOrChangedByteCrashes) {
  const std::string text =
      "\xef\xbb\xbf"
      "a,\"b \"\"c\"\"\",d\r\n1,\"x\ny\",\" z\"\r\n\r\n2,3,";
  for (size_t size = 0; size <= text.size(); ++size) (void)read_records(text.substr(0, size));
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'"', ',', '\n', '\r', '\0', ' ', '\xff'}) {
      std::string changed = text;
      changed[i] = c;
      (void)read_records(changed);
    }
  }
}

TEST(Gzip, SeveralMembersAreOneStreamAndDamageIsRefused) {
  const std::string text = "a,b\n1,2\n";
  EXPECT_EQ(read_records(gzip(text)).value(), read_records(text).value());
  EXPECT_EQ(read_records(gzip("a,b\n") + gzip("1,2\n")).value(), read_records(text).value());
  const std::string packed = gzip(text);
  for (size_t size = 2; size < packed.size(); ++size) {
    EXPECT_FALSE(read_records(packed.substr(0, size)).ok()) << size;
  }
  for (size_t i = 2; i < packed.size(); ++i) {
    if (i >= 4 && i < 10) continue;  // time, compressor flags and system, which no reader checks
    std::string flipped = packed;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    // A few bits of the last byte of the deflate data have no meaning.
    const auto records = read_records(flipped);
    EXPECT_TRUE(!records.ok() || (i == packed.size() - 9 && *records == *read_records(text))) << i;
  }
  EXPECT_FALSE(read_records(packed + "trailing").ok());
}

}  // namespace
}  // namespace trainyard
