// Tests of the structure of CSV files: names, rows with more or fewer fields than the header, ends
// of lines. The columns and rows are those of pandas.read_csv (3.1) with its defaults. They fail if
// a column gets another name than there, or if a bad row is dropped or not counted.
#include <gtest/gtest.h>

#include "src/data/preprocessing.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

using Names = std::vector<std::string>;

/// Returns the columns of a CSV file with the target y.
Names columns_of(const std::string& text) {
  const IngestedCsv d(csv_options("y"), text);
  EXPECT_TRUE(d.ok()) << d.message() << "\n" << text;
  return d.ok() ? d->schema().source_columns : Names();
}

TEST(TableStructure, ColumnsAreNamedAsPandasNamesThem) {
  EXPECT_EQ(columns_of(",c0,y\n0,1,u\n1,2,v\n"), (Names{"Unnamed: 0", "c0", "y"}));
  EXPECT_EQ(columns_of("a,,y\n0,1,u\n1,2,v\n"), (Names{"a", "Unnamed: 1", "y"}));
  EXPECT_EQ(columns_of(",Unnamed: 0,y\n0,1,u\n1,2,v\n"),
            (Names{"Unnamed: 0.1", "Unnamed: 0", "y"}));
  EXPECT_EQ(columns_of("a,a,a,y\n0,1,2,u\n1,2,3,v\n"), (Names{"a", "a.1", "a.2", "y"}));
  EXPECT_EQ(columns_of("a,a,a.1,y\n0,1,2,u\n1,2,3,v\n"), (Names{"a", "a.2", "a.1", "y"}));
  EXPECT_EQ(columns_of("1970,1971,y\n0,1,u\n1,2,v\n"), (Names{"1970", "1971", "y"}));
  EXPECT_EQ(IngestedCsv(csv_options("y"), "1,1,y\n0,1,u\n1,2,v\n").message(),
            "data: header, column 2: the number '1' appears twice, which names do not; if the file "
            "has no header, set header: false");
}

TEST(TableStructure, SeparatorsAtTheEndsOfLinesMakeNoColumn) {
  for (const char* text : {"a,y,\n1,u,\n2,v,\n", "a,y\n1,u,\n2,v,\n"}) {
    const IngestedCsv d(csv_options("y"), text);
    ASSERT_TRUE(d.ok()) << d.message();
    EXPECT_EQ(d->schema().source_columns, (Names{"a", "y", "Unnamed: 2"}));
    EXPECT_EQ(d->schema().ignored_columns, Names{"Unnamed: 2"});
    ASSERT_FALSE(d->schema().warnings.empty());
    EXPECT_EQ(d->schema().warnings[0].key, "NAMELESS_COLUMN");
    EXPECT_EQ(
        d->schema().warnings[0].message,
        "Left out, because they have neither a name nor a value, as separators at the ends of "
        "lines make them: 'Unnamed: 2'.");
    EXPECT_TRUE(parse_raw_rows(d->schema(), "csv", "a\n1\n").ok()) << "rows need no such column";
    EXPECT_TRUE(parse_raw_rows(d->schema(), "csv", "a,y,\n1,u,\n").ok());
    EXPECT_TRUE(parse_raw_rows(d->schema(), "csv", "a,y\n1,u,\n").ok()) << "as in the second file";
  }
  EXPECT_EQ(columns_of("a,y,\n1,u\n2,v\n"), (Names{"a", "y"})) << "only the header has one";
  EXPECT_EQ(columns_of("a,y,\n1,u,\n2,v,3\n"), (Names{"a", "y", "Unnamed: 2"}));
}

TEST(TableStructure, TheNamesOfRowsNeedNoName) {
  // R's write.csv() names them "", write.table() leaves the name out.
  EXPECT_EQ(columns_of("a,y\nr1,1,u\nr2,2,v\n"), (Names{"Unnamed: 0", "a", "y"}));
  EXPECT_EQ(columns_of("\"\",\"a\",\"y\"\n\"r1\",1,\"u\"\n\"r2\",2,\"v\"\n"),
            (Names{"Unnamed: 0", "a", "y"}));
  EXPECT_EQ(IngestedCsv(csv_options("y"), "a,y\n1,u,\n2,v\n").message(),
            "data: row 1 (line 2): 3 fields, expected 2 as in the header");
}

TEST(TableStructure, RowsToPredictMayHaveNamesIfTheTrainingRowsHad) {
  const IngestedCsv with(csv_options("y"), "a,y\n5,1,u\n6,2,v\n");
  ASSERT_TRUE(with.ok()) << with.message();
  const auto rows = parse_raw_rows(with->schema(), "csv", "a,y\n7,3,u\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->numeric, (std::vector<float>{7, 3}));
  const IngestedCsv without(csv_options("y"), "a,b,y\n5,1,u\n6,2,v\n");
  ASSERT_TRUE(without.ok()) << without.message();
  EXPECT_EQ(parse_raw_rows(without->schema(), "csv", "a,b\n7,3,4\n").error().message,
            "rows: row 1 (line 2): 3 fields, expected 2");
}

TEST(TableStructure, LinesMayEndByCrAloneAndQuotesMayBeText) {
  const std::string text = "a,b,y\n1,\"x\",u\n2,5\" nail,v\n3,x,u\n4,,v\n";
  std::string cr = text;
  for (char& c : cr) c = c == '\n' ? '\r' : c;
  const IngestedCsv expected(csv_options("y"), text), d(csv_options("y"), cr);
  ASSERT_TRUE(expected.ok() && d.ok()) << expected.message() << d.message();
  EXPECT_EQ(d->schema().columns[1].categories, (Names{"5\" nail", "x"}));
  EXPECT_EQ(schema_text(d->schema()), schema_text(expected->schema()));
  EXPECT_EQ(copy(d->train().numeric), (std::vector<float>{1, 2, 3, 4}));
}

TEST(TableStructure, AllRowsWithAnotherNumberOfFieldsAreCounted) {
  std::string text = "a,b,y\n1,2,u\n2,3,v\n";
  for (int i = 0; i < 300; ++i) text += i % 3 == 0 ? "1,2\n" : i % 3 == 1 ? "1,2,u,4\n" : "1,2,u\n";
  const IngestedCsv d(csv_options("y"), text);
  EXPECT_EQ(
      d.message(),
      "data: row 3 (line 4): 2 fields, expected 3 as in the header (the first of 200 problems)");
  const std::vector<FieldViolation>& listed = d.result().error().violations;
  ASSERT_EQ(listed.size(), 16u);
  EXPECT_EQ(listed[1].field, "data: row 4 (line 5)");
  EXPECT_EQ(listed[1].description, "4 fields, expected 3 as in the header");
  EXPECT_EQ(listed[15].field, "data: row 25 (line 26)");
}

TEST(TableStructure, OtherColumnsOfATestSetAreReported) {
  const IngestedCsv d(csv_options("y"), "colour,x,y\nred,1,a\nblue,2,b\n",
                      "Id,Y,X,COLOUR,note\n7,b,3,red,n\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->test().numeric), std::vector<float>{3});
  EXPECT_EQ(copy(d->test().category), std::vector<int32_t>{1});
  ASSERT_FALSE(d->schema().warnings.empty());
  const DataWarning& warning = d->schema().warnings[0];
  EXPECT_EQ(warning.key, "TEST_COLUMNS_IGNORED");
  EXPECT_EQ(warning.columns, (Names{"Id", "note"}));
  EXPECT_EQ(warning.count, 2);
}

TEST(TableStructure, APageInPlaceOfATableIsNamed) {
  EXPECT_EQ(
      IngestedCsv(csv_options("y"), "<!DOCTYPE html>\n<html><body>404</body></html>\n").message(),
      "data: this is a page in HTML, expected a table. A download may have "
      "stored a web page in place of the file: use the link to the data itself.");
}

TEST(TableStructure, ATagMayBeginTheFirstValue) {
  CsvOptions options = csv_options("c1");
  options.header = false;
  options.text = {"c0"};
  const IngestedCsv d(options, "<div>good</div>,a\n<b>bad</b>,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().train_rows, 2);
  for (const char* text : {"<div>good</div>\n", "<html>good</html>\n"}) {
    EXPECT_TRUE(parse_raw_rows(d->schema(), "csv", text).ok()) << text;
  }
}

}  // namespace
}  // namespace trainyard
