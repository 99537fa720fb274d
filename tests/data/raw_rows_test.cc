// The tests fail if a prediction reads a column, category or pixel differently from training, or
// bad rows are accepted.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/preprocessing.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

struct Table {
  Table() : dataset(options(), "id,size,colour,y\n7,1,red,a\n8,2,blue,b\n") {}
  static CsvOptions options() {
    CsvOptions o = csv_options("y");
    o.ignore = {"id"};
    return o;
  }
  Result<RawRows> parse(std::string_view text) const {
    return parse_raw_rows(dataset->schema(), "csv", text);
  }
  std::string message(std::string_view text) const {
    const auto rows = parse(text);
    return rows.ok() ? "" : rows.error().message;
  }
  IngestedCsv dataset;
};

TEST(RawRows, ComposedAndDecomposedNamesAreOne) {
  const std::string composed = "caf\u00e9", decomposed = "cafe\u0301";
  for (const std::string& option : {composed, decomposed}) {
    CsvOptions options = csv_options("y" + option);
    options.ignore = {"id" + option};
    const IngestedCsv d(options,
                        "id" + composed + ",x" + decomposed + ",y" + composed + "\n1," + composed +
                            "," + decomposed + "\n2,tea," + composed + "\n3," + decomposed +
                            ",tea\n",
                        "x" + composed + ",y" + decomposed + ",id" + composed + "\n" + decomposed +
                            "," + decomposed + ",1\n");
    ASSERT_TRUE(d.ok()) << d.message();
    EXPECT_EQ(d->schema().columns[0].name, "x" + composed);
    EXPECT_EQ(d->schema().columns[0].categories, (std::vector<std::string>{composed, "tea"}));
    EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{composed, "tea"}));
    EXPECT_EQ(d->test().category[0], 0);
    EXPECT_EQ(d->test().target_class[0], 0);
    const auto rows =
        parse_raw_rows(d->schema(), "csv", "x" + decomposed + "\n" + decomposed + "\ntea\n");
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->category, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(rows->unseen_count, 0);
  }
}

TEST(RawRows, EveryFormatGivesTheSameRows) {
  const Table table;
  for (const char* text : {
           "size,colour\n1.5,red\n,green\n",                // columns by name
           "colour,size\nred,1.5\ngreen,NA\n",              // columns in any order
           "y,id,colour,size\n?,3,red,1.5\nz,4,green,?\n",  // with the target and ignored columns
           "1.5,red\n,green\n",                             // columns by position
           "1.5,red,b\n,green,\n",                          // with the target
           "3,1.5,red,b\n4,,green,a\n",                     // all of the file's columns
           "\xef\xbb\xbfsize,colour\r\n1.5,\"red\"\r\n?,green",
       }) {
    const auto rows = table.parse(text);
    ASSERT_TRUE(rows.ok()) << rows.error().message << "\n" << text;
    ASSERT_EQ(rows->rows, 2);
    EXPECT_EQ(rows->numeric[0], 1.5f);
    EXPECT_TRUE(std::isnan(rows->numeric[1]));
    EXPECT_EQ(rows->category, (std::vector<int32_t>{1, -1}));  // an unknown color is no error
    EXPECT_EQ(rows->view().rows, 2);
  }
  EXPECT_EQ(table.parse(gzip("1.5,red\n"))->rows, 1);
}

TEST(RawRows, UnseenCategoriesAreReported) {
  const Table table;
  const auto rows =
      table.parse("size,colour\n1,red\n2,green\n3,\n4,mau" + std::string(100, 'v') + "\xc3\xa9\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->unseen_count, 2) << "a missing value is none of them";
  ASSERT_EQ(rows->unseen.size(), 2u);
  EXPECT_EQ(rows->unseen[0].row, 1);
  EXPECT_EQ(rows->unseen[0].column, "colour");
  EXPECT_EQ(rows->unseen[0].value, "green");
  EXPECT_EQ(rows->unseen[1].value.size(), RawRows::kUnseenBytesMax);
  std::string many = "size,colour\n";
  for (size_t i = 0; i < RawRows::kUnseenMax + 5; ++i) many += "1,green\n";
  const auto all = table.parse(many);
  EXPECT_EQ(all->unseen.size(), RawRows::kUnseenMax);
  EXPECT_EQ(all->unseen_count, std::ssize(all->unseen) + 5);
  // A multi-byte character is never cut: bytes 63 and 64 form one character.
  const auto cut = table.parse("size,colour\n1," + std::string(63, 'v') + "\xc3\xa9\n");
  EXPECT_EQ(cut->unseen[0].value, std::string(63, 'v'));
}

TEST(RawRows, BadRowsAreRefusedWithTheirPlace) {
  const Table table;
  EXPECT_EQ(table.message(""), "rows: there are no rows");
  EXPECT_EQ(table.message("size,colour\n"), "rows: there is a header, but no rows");
  EXPECT_EQ(
      table.message("sise,colour\n1,red\n"),
      "rows: the column 'size', which the model learned from, is missing; is 'sise' meant to be "
      "'size'?");
  EXPECT_EQ(table.message("size,colour\n1,red\nx,red\n"),
            "rows: row 2 (line 3), column 'size': 'x' is not a number");
  EXPECT_EQ(table.message("1,red\n1\n1,red,b\n"),
            "rows: row 2 (line 2): 1 field, expected 2 (the first of 2 problems)");
  EXPECT_EQ(table.message("size;colour\n1;red\n"),
            "rows: the fields are separated by semicolons, expected commas");
  EXPECT_EQ(table.message("1\tred\n"), "rows: the fields are separated by tabs, expected commas");
  EXPECT_EQ(table.message("1\n"),
            "rows: 1 field in the first row; the model expects the 2 columns 'size' and 'colour', "
            "with or without the target, in this order or below a header with their names");
  EXPECT_EQ(parse_raw_rows(table.dataset->schema(), "json", "{}").error().message,
            "format: 'json', expected csv, idx or text");
  EXPECT_FALSE(parse_raw_rows(table.dataset->schema(), "idx", idx_file(8, {1, 1, 1}, "x")).ok());
  const std::string text = "size,colour\n1,\"red\"\n";
  for (size_t size = 0; size < text.size(); ++size) (void)table.parse(text.substr(0, size));
}

/// A model of six columns, of which the fourth was ignored.
struct People {
  People()
      : dataset(
            options(),
            "age,sex,fare,name,Port,deck,y\n1,m,2,ann,S,a,0\n2,f,3,bob,C,b,1\n3,f,4,eva,C,b,1\n") {}
  static CsvOptions options() {
    CsvOptions o = csv_options("y");
    o.ignore = {"name"};
    return o;
  }
  std::string message(std::string_view text) const {
    const auto rows = parse_raw_rows(dataset->schema(), "csv", text);
    return rows.ok() ? "" : rows.error().message;
  }
  IngestedCsv dataset;
};

TEST(RawRows, AHeaderWithoutSomeColumnsNamesThem) {
  const People people;
  EXPECT_EQ(
      people.message("age,sex\n1,m\n"),
      "rows: the columns 'fare', 'Port' and 'deck', which the model learned from, are missing");
  EXPECT_EQ(people.message("fare,name\n1,ann\n"),
            "rows: the columns 'age', 'sex', 'Port' and 'deck', which the model learned from, are "
            "missing");
  EXPECT_EQ(
      people.message("colour,sizes,weight\nred,1,2\n"),
      "rows: the columns 'age', 'sex', 'fare', 'Port' and 'deck', which the model learned from, "
      "are missing; the rows have 'colour', 'sizes' and 'weight' instead");
  EXPECT_EQ(
      people.message("years,gender,price,harbour,floor\n1,m,2,S,a\n"),
      "rows: the columns 'age', 'sex', 'fare', 'Port' and 'deck', which the model learned from, "
      "are missing; the rows have 'years', 'gender', 'price', 'harbour' and 'floor' instead")
      << "as many names as columns, but texts are above all numbers";
  EXPECT_EQ(
      people.message("1,m,2\n"),
      "rows: 3 fields in the first row; the model expects the 5 columns 'age', 'sex', 'fare', "
      "'Port' and 'deck', with or without the target, in this order or below a header with "
      "their names");
  EXPECT_EQ(people.message("1,m,2,S,a\n"), "") << "without a header";
}

TEST(RawRows, ColumnsInAnyCaseAndOrderAndOtherColumnsAreAccepted) {
  const People people;
  const auto parse = [&](std::string_view text) {
    return parse_raw_rows(people.dataset->schema(), "csv", text);
  };
  const auto expected = parse("1,m,2,S,a\n2,f,3,C,b\n");
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  EXPECT_TRUE(expected->ignored_columns.empty());
  const auto rows = parse("note,DECK,Fare,id,port,SEX,AGE,Y\nx,a,2,7,S,m,1,0\nx,b,3,8,C,f,2,1\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->numeric, expected->numeric);
  EXPECT_EQ(rows->category, expected->category);
  EXPECT_EQ(rows->ignored_columns, (std::vector<std::string>{"note", "id"}));
  // An equal name wins, and of two others none is preferred.
  const auto both = parse("AGE,age,sex,fare,port,deck\n9,1,m,2,S,a\n9,2,f,3,C,b\n");
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(both->numeric, expected->numeric);
  EXPECT_EQ(both->ignored_columns, (std::vector<std::string>{"AGE"}));
  EXPECT_EQ(
      people.message("Age,AGE,sex,fare,port,deck\n9,1,m,2,S,a\n"),
      "rows: the column 'age', which the model learned from, is missing; is 'Age' meant to be "
      "'age'?");
}

TEST(RawRows, ARowOfNumbersIsNoHeaderOfColumnsThatAreNamedByNumbers) {
  const IngestedCsv d(csv_options("y"), "0,1,2,3,y\n5,7,7,1,a\n1,0,2,9,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(parse_raw_rows(d->schema(), "csv", "2,0,2,3\n1,1,1,1\n")->rows, 2);
  EXPECT_EQ(parse_raw_rows(d->schema(), "csv", "0,1,7,9\n1,1,1,1\n")->rows, 2);
  const auto named = parse_raw_rows(d->schema(), "csv", "3,2,1,0\n5,6,7,8\n");
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(named->numeric, (std::vector<float>{8, 7, 6, 5}));
}

TEST(RawRows, ImagesAsIdxAndAsPixelColumns) {
  const std::string pixels = {'\1', '\2', '\3', '\4'};
  const IngestedIdx d(idx_file(8, {2, 1, 2}, pixels), idx_file(8, {2}, std::string("\0\1", 2)));
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& schema = d->schema();
  for (const std::string& bytes :
       {idx_file(8, {2, 1, 2}, pixels), gzip(idx_file(8, {2, 1, 1, 2}, pixels))}) {
    const auto rows = parse_raw_rows(schema, "idx", bytes);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->image_u8, (std::vector<uint8_t>{1, 2, 3, 4}));
  }
  const auto csv = parse_raw_rows(schema, "csv", "1,2\n3,4\n");
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  EXPECT_EQ(csv->image_u8, (std::vector<uint8_t>{1, 2, 3, 4}));
  const auto message = [&](const char* format, const std::string& bytes) {
    return parse_raw_rows(schema, format, bytes).error().message;
  };
  EXPECT_EQ(
      message("csv", "1,2,3\n"),
      "rows: 3 fields in the first row; the model expects images [1, 1, 2]: JPEG or PNG files, "
      "IDX, or CSV with the 2 pixels of an image in each row");
  EXPECT_EQ(message("csv", "1,256\n"),
            "rows: row 1 (line 1), column 'c1': '256' is not a whole number from 0 to 255, as all "
            "pixels of the training data are");
  EXPECT_EQ(message("idx", idx_file(8, {1, 2, 2}, pixels)),
            "rows: U8 images of [1, 2, 2], expected U8 of [1, 1, 2] as the model was trained on");
  EXPECT_FALSE(parse_raw_rows(schema, "idx", "").ok());
  // The size of decompressed rows is limited: 4 MB of gzip may be 4 GB.
  const std::string lying = gzip(idx_file(8, {0x7fffffff, 1, 2}, ""));
  EXPECT_EQ(
      message("idx", lying),
      "rows: the header promises [2147483647, 1, 2], 4294967294 bytes, at most 1073741824 are "
      "accepted");
}

}  // namespace
}  // namespace trainyard
