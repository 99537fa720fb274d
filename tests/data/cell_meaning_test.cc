// The tests fail if a cell gets another meaning by its spelling: if 1 and 1.0 are two categories, a
// spelling of a missing number makes a column useless, "NA" of a category is lost without a word,
// or numbers that differ become equal in 32 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/align.h"
#include "src/data/statistics.h"
#include "src/data/table/category_codes.h"
#include "src/data/table/csv_cell.h"
#include "src/data/typed_dataset.h"
#include "src/data/warnings.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

using Names = std::vector<std::string>;

CsvOptions with_categories(Names columns) {
  CsvOptions options = csv_options("y");
  options.categorical = std::move(columns);
  return options;
}

std::vector<std::string> keys_of(const DatasetSchema& schema) {
  std::vector<std::string> keys;
  for (const DataWarning& warning : schema.warnings) keys.push_back(warning.key);
  return keys;
}

const DataWarning& warning_of(const DatasetSchema& schema, std::string_view key) {
  static const DataWarning none;
  for (const DataWarning& warning : schema.warnings) {
    if (warning.key == key) return warning;
  }
  return none;
}

TEST(CellMeaning, WholeNumbersAreOneCategoryHoweverTheyAreWritten) {
  const IngestedCsv d(with_categories({"k"}), "k,y\n1,a\n1.0,b\n1e0,a\n+2,b\n-0.0,a\nNA,a\n",
                      "k,y\n2.0,a\n0,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].categories, (Names{"0", "1", "2"}));
  EXPECT_EQ(copy(d->train().category), (std::vector<int32_t>{1, 1, 1, 2, 0, -1}));
  EXPECT_EQ(copy(d->test().category), (std::vector<int32_t>{2, 0}));
  // A DataFrame with a gap writes whole numbers as 1.0 and 2.0 (case tables/09).
  const auto rows = parse_raw_rows(d->schema(), "csv", "k\n1.0\n\"\"\n2.0\n3.0\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->category, (std::vector<int32_t>{1, -1, 2, -1}));
  ASSERT_EQ(rows->unseen_count, 1);
  EXPECT_EQ(rows->unseen[0].value, "3");
}

TEST(CellMeaning, LeadingZerosAreKeptAndReportedBesideTheSameNumber) {
  const IngestedCsv d(with_categories({"zip"}), "zip,y\n01,a\n1.0,b\n02,a\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].categories, (Names{"01", "1", "02"}));
  EXPECT_EQ(keys_of(d->schema()), Names{"UNCLEAR_NUMBERS"});
  EXPECT_NE(d->schema().warnings[0].message.find("'01' and '1'"), std::string::npos);
  const IngestedCsv classes(csv_options("y"), "x,y\n1,01\n2,1\n3,02\n");
  ASSERT_TRUE(classes.ok()) << classes.message();
  EXPECT_EQ(classes->schema().target.classes, (Names{"01", "1", "02"}));
  EXPECT_EQ(keys_of(classes->schema()), Names{"UNCLEAR_NUMBERS"});
  const IngestedCsv plain(with_categories({"zip"}), "zip,y\n01,a\n12,b\n");
  EXPECT_TRUE(plain->schema().warnings.empty());
}

TEST(CellMeaning, LabelsBeyond2To53StayApart) {
  const IngestedCsv d(csv_options("y"), "x,y\n1,9007199254740992\n2,9007199254740993\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().target.classes, (Names{"9007199254740992", "9007199254740993"}));
  EXPECT_EQ(copy(d->train().target_class), (std::vector<int32_t>{0, 1}));
}

TEST(CellMeaning, MissingNumbersAreThoseOfPandas) {
  const std::string all =
      "#N/A;#N/A N/A;#NA;-1.#IND;-1.#QNAN;-NaN;-nan;1.#IND;1.#QNAN;<NA>;N/A;NA;NULL;NaN;None;n/a;"
      "nan;null;NAN;?;";
  std::string text = "x,when,y\n1,2026-01-01,2\n";
  int64_t count = 0;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find(';', begin);
    const std::string marker = all.substr(begin, end - begin);
    text += marker + "," + marker + ",1.5\n";
    begin = end + 1;
    ++count;
  }
  CsvOptions options = csv_options("y");
  options.date = {"when"};
  const IngestedCsv d(options, text);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].kind, ColumnSchema::Kind::kNumeric);
  EXPECT_EQ(d->schema().columns[0].missing_count, count);
  EXPECT_EQ(d->schema().columns[1].missing_count, count);
  const auto rows = parse_raw_rows(d->schema(), "csv", "x,when\nN/A,null\nNAN,#N/A\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  for (const float x : rows->numeric) EXPECT_TRUE(std::isnan(x));
}

TEST(CellMeaning, InfiniteNumbersAreStillRefused) {
  const IngestedCsv d(csv_options("y"), "x,y\n1,a\ninf,b\n2,a\n");
  EXPECT_NE(d.message().find("'inf' is not a finite number"), std::string::npos) << d.message();
}

TEST(CellMeaning, ANamedMissingTextReplacesTheDefaultsInAllColumns) {
  CsvOptions options = csv_options("y");
  options.missing = {".", "-999"};
  const IngestedCsv d(options, "x,c,y\n1,red,a\n.,.,b\n-999,blue,a\n-999.0,NA,b\n,,a\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].missing_count, 4);
  EXPECT_EQ(d->schema().columns[1].categories, (Names{"NA", "blue", "red"}));
  EXPECT_EQ(d->schema().columns[1].missing_count, 2);
  const auto rows = parse_raw_rows(d->schema(), "csv", "x,c\n.,.\n-999.0,red\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_TRUE(std::isnan(rows->numeric[0]) && std::isnan(rows->numeric[1]));
  EXPECT_EQ(rows->category, (std::vector<int32_t>{-1, 2}));
  const IngestedCsv strict(options, "x,y\n1,a\nN/A,b\n2,a\n");
  EXPECT_NE(strict.message().find("'N/A' is not a number"), std::string::npos) << strict.message();
  EXPECT_NE(strict.message().find("in `missing`"), std::string::npos) << strict.message();
}

TEST(CellMeaning, NamibiaIsACategoryWithAWarning) {
  const IngestedCsv d(csv_options("y"), "country,y\nNA,a\nZA,b\nNA,a\nDE,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].categories, (Names{"DE", "NA", "ZA"}));
  const DataWarning& warning = warning_of(d->schema(), "MISSING_AS_NAME");
  EXPECT_EQ(warning.columns, Names{"country"});
  EXPECT_EQ(warning.count, 2);
  EXPECT_NE(warning.message.find("list it in dataset.csv.missing"), std::string::npos);
  CsvOptions options = csv_options("y");
  options.missing = {"NA"};
  const IngestedCsv named(options, "country,y\nNA,a\nZA,b\nNA,a\nDE,b\n");
  EXPECT_EQ(named->schema().columns[0].missing_count, 2);
  EXPECT_TRUE(named->schema().warnings.empty());
  const IngestedCsv none(csv_options("y"), "extra,y\nNone,a\nPool,b\n");
  EXPECT_TRUE(none->schema().warnings.empty()) << "the name of many real categories";
}

TEST(CellMeaning, AClassMayHaveTheNameOfAMissingNumber) {
  CsvOptions options = csv_options("y");
  options.missing_target = "skip";
  const std::string text = "x,y\n1,NA\n2,ZA\n3,\n4,NA\n";
  const IngestedCsv d(options, text);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().target.classes, (Names{"NA", "ZA"}));
  EXPECT_EQ(d->schema().skipped_rows, 1);
  EXPECT_EQ(warning_of(d->schema(), "MISSING_AS_NAME").count, 2);
  const IngestedCsv numbers(options, "x,y\n1,NA\n2,0.5\n3,\n4,2.5\n");
  ASSERT_TRUE(numbers.ok()) << numbers.message();
  EXPECT_EQ(numbers->schema().skipped_rows, 2);
}

TEST(CellMeaning, BooleansAreOneCategoryInAnySpelling) {
  const IngestedCsv d(
      csv_options("y"),
      "a,b,c,d,y\nTrue,Yes,T,1,on\ntrue,no,F,TRUE,off\nFALSE,NO,T,0,ON\n1,yes,F,f,off\n",
      "a,b,c,d,y\nf,Y,true,T,On\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<ColumnSchema>& columns = d->schema().columns;
  EXPECT_EQ(columns[0].categories, (Names{"false", "true"}));
  EXPECT_EQ(columns[1].categories, (Names{"no", "yes"}));
  EXPECT_EQ(columns[2].categories, (Names{"F", "T"})) << "each has one spelling";
  EXPECT_EQ(columns[3].categories, (Names{"false", "true"}));
  EXPECT_EQ(d->schema().target.classes, (Names{"off", "on"}));
  EXPECT_EQ(copy(d->train().category),
            (std::vector<int32_t>{1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(copy(d->train().target_class), (std::vector<int32_t>{1, 0, 1, 0}));
  EXPECT_EQ(copy(d->test().category), (std::vector<int32_t>{0, 1, 1, 1}));
  EXPECT_TRUE(d->schema().warnings.empty());
}

TEST(CellMeaning, WordsOfDifferentPairsAreOrdinaryCategories) {
  const IngestedCsv d(csv_options("y"), "gene,y\nT,a\nN,b\nF,a\nY,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().columns[0].categories, (Names{"F", "N", "T", "Y"}));
  const IngestedCsv missing(csv_options("y"), "won,y\nTrue,a\nN/A,b\ntrue,a\nFalse,b\n");
  EXPECT_EQ(missing->schema().columns[0].categories, (Names{"false", "true"}));
  EXPECT_EQ(missing->schema().columns[0].missing_count, 1);
}

TEST(CellMeaning, CategoriesOfAnotherDatasetMatchInAnySpelling) {
  const IngestedCsv model(csv_options("y"), "a,y\nTrue,x\nFalse,z\n");
  const IngestedCsv data(csv_options("y"), "a,y\nfalse,x\ntrue,z\nTRUE,z\n");
  const auto rows = AlignedRows::align(model->schema(), data->schema(), data->train());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(copy(rows->view().category), (std::vector<int32_t>{0, 1, 1}));
}

TEST(CellMeaning, LargeWholeNumbersKeepTheirDifferences) {
  std::string text = "code,y\n";
  for (int i = 0; i < 40; ++i) text += (i % 3 == 0 ? "16777217,b\n" : "16777216,a\n");
  const IngestedCsv d(csv_options("y"), text);  // case tables/05
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().statistics->numeric[0]->min, 16777216);
  EXPECT_EQ(d->schema().statistics->numeric[0]->max, 16777217);
  EXPECT_NE(d->train().numeric[0], d->train().numeric[1]);
  for (const DataWarning& w : d->schema().warnings) {
    EXPECT_EQ(w.message.find("the same value"), std::string::npos) << w.message;
  }
  const auto rows = parse_raw_rows(d->schema(), "csv", "code\n16777217\n16777216\n");
  EXPECT_EQ(rows->numeric, (std::vector<float>{d->train().numeric[0], d->train().numeric[1]}));
}

TEST(CellMeaning, ATargetFarFromZeroIsPredictedInItsOwnUnit) {
  std::string text = "a,price\n";
  for (int i = 0; i < 50; ++i) {
    text += std::to_string(i) + "," + std::to_string(1000000000 + i) + ".5\n";
  }
  const IngestedCsv d(csv_options("price"), text);  // case tables/19
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_DOUBLE_EQ(d->schema().statistics->target->min, 1000000000.5);
  EXPECT_DOUBLE_EQ(d->schema().statistics->target->max, 1000000049.5);
  std::vector<int64_t> rows(50);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  const Preprocessing p = fit_preprocessing(d->schema(), d->train(), rows);
  const RowTransform transform(d->schema(), p);
  for (size_t i = 0; i < rows.size(); ++i) {
    const float standardized = transform.standardize_target(d->train().target_numeric[i]);
    EXPECT_NEAR(transform.restore_target(standardized), 1000000000.5 + static_cast<double>(i),
                1e-4);
  }
}

TEST(CellMeaning, RowsOfAnotherDatasetGetTheModelsOffset) {
  CsvOptions options = csv_options("price");
  options.target_kind = "numeric";
  const IngestedCsv model(options, "t,price\n1700000001,1e9\n1700000003,1000000001\n");
  const IngestedCsv data(options, "t,price\n1700000003,1000000001\n1700003601,1000000005\n");
  ASSERT_NE(model->schema().columns[0].offset, data->schema().columns[0].offset);
  const auto rows = AlignedRows::align(model->schema(), data->schema(), data->train());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const double t = static_cast<double>(rows->view().numeric[1]) + model->schema().columns[0].offset;
  EXPECT_EQ(t, 1700003601);
  const double price =
      static_cast<double>(rows->view().target_numeric[1]) + model->schema().target.offset;
  EXPECT_EQ(price, 1000000005);
}

TEST(CellMeaning, OrdinaryNumbersHaveNoOffset) {
  const IngestedCsv d(csv_options("y"),
                      "a,b,c,y\n0.1,16777216,1e-9,a\n0.2,5,1e15,b\n0.3,100000000,7,a\n");
  ASSERT_TRUE(d.ok()) << d.message();
  for (const ColumnSchema& column : d->schema().columns) EXPECT_EQ(column.offset, 0) << column.name;
}

TEST(CellMeaning, LostDigitsAreReported) {
  std::string text = "id,far,y\n";
  for (int i = 0; i < 40; ++i) {
    text += std::to_string(9007199254740992 + i) + "," +
            std::to_string(i % 2 == 0 ? 1 : 1000000000 + i) + "," + (i % 3 == 0 ? "a" : "b") + "\n";
  }
  const IngestedCsv d(csv_options("y"), text);
  ASSERT_TRUE(d.ok()) << d.message();
  int found = 0;
  for (const DataWarning& w : d->schema().warnings) {
    if (w.key != "LOST_DIGITS") continue;
    ++found;
    EXPECT_NE(w.message.find("list it in dataset.csv.categorical"), std::string::npos) << w.message;
  }
  EXPECT_EQ(found, 2);
}

TEST(CellMeaning, TimesOfOneDayKeepTheirSeconds) {
  CsvOptions options = csv_options("y");
  options.date = {"when"};
  const IngestedCsv d(options, "when,y\n2026-03-01T10:00:00,a\n2026-03-01T10:00:01,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_NE(d->train().numeric[0], d->train().numeric[7]);
  const double first = static_cast<double>(d->train().numeric[0]) + d->schema().columns[0].offset;
  EXPECT_NEAR(first, 20513 + 10.0 / 24, 1e-6);
}

TEST(CellMeaning, OffsetsAreInTheSchemasJson) {
  const IngestedCsv d(csv_options("y"), "t,y\n1700000001,1000000000.5\n1700000003,1000000001.5\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const Result<DatasetSchema> read = parse_schema(schema_text(d->schema()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->columns[0].offset, 1700000002);
  EXPECT_EQ(read->target.offset, 1000000001);
}

TEST(CellMeaning, AMinusSignOfPrintIsAMinus) {
  const IngestedCsv d(csv_options("y"),
                      "x,y\n\xe2\x88\x92"
                      "1.5,a\n2,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->train().numeric[0], -1.5F);
}

}  // namespace
}  // namespace trainyard
