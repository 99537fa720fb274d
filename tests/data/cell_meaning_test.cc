// The tests fail if a cell gets another meaning by its spelling: if 1 and 1.0 are two categories, a
// spelling of a missing number makes a column useless, "NA" of a category is lost without a word,
// or numbers that differ become equal in 32 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/align.h"
#include "src/data/statistics.h"
#include "src/data/table/category_codes.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"
#include "src/data/table/number_spelling.h"
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

TEST(NumberSpelling, DecimalCommasAndThousandsAreReadBySettings) {
  CsvOptions options = csv_options("y");
  options.delimiter = ';';
  options.decimal = ",";
  options.thousands = ".";
  const IngestedCsv d(options, "x;y\n0,078;a\n1.234,5;b\n-2;a\n1.000.000;b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(copy(d->train().numeric), (std::vector<float>{0.078F, 1234.5F, -2, 1000000}));
  // Rows to predict are read like the training file; those of a program have decimal points.
  const auto same = parse_raw_rows(d->schema(), "csv", "x;z\n");
  EXPECT_FALSE(same.ok());
  const auto rows = parse_raw_rows(d->schema(), "csv", "x;y\n0,078;a\n1.234,5;b\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->numeric, (std::vector<float>{0.078F, 1234.5F}));
  const auto program = parse_raw_rows(d->schema(), "csv", "x,y\n0.078,a\n1.234,b\n");
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_EQ(program->numeric, (std::vector<float>{0.078F, 1.234F}));
}

TEST(NumberSpelling, GroupsHaveThreeDigits) {
  const CellReader cells({}, {',', "."});
  for (const char* text : {"1.23", "12.34", "1234.567", "0.078", ".5", "1..000", "1.000.00"}) {
    EXPECT_FALSE(cells.read(text).is_number()) << text;
  }
  EXPECT_EQ(cells.read("12.345,67").value, 12345.67);
  EXPECT_EQ(cells.read(",5").value, 0.5);
  const CellReader spaces({}, {',', " "});
  EXPECT_EQ(spaces
                .read("1 234\xc2\xa0"
                      "567,5")
                .value,
            1234567.5);
  EXPECT_FALSE(cells.read("inf").is_number());
}

TEST(NumberSpelling, UnitsCurrenciesAndParenthesesAreReadInListedColumns) {
  CsvOptions options = csv_options("y");
  options.target_kind = "numeric";
  options.numbers = {"weight", "profit", "share", "y"};
  const IngestedCsv d(options,
                      "weight,profit,share,y\n12 kg,(1.2),5 %,$3\n7.5kg,3,-2%,-$4\n"
                      "8,\xe2\x88\x92"
                      "1,N/A,$ 5\n9 kg,2.5-,7.25 %,($6)\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<ColumnSchema>& columns = d->schema().columns;
  EXPECT_EQ(columns[0].unit, "kg");
  EXPECT_EQ(columns[1].unit, "");
  EXPECT_EQ(columns[2].unit, "%");
  EXPECT_EQ(d->schema().target.unit, "$");
  EXPECT_EQ(columns[2].missing_count, 1);
  const std::vector<float> x = copy(d->train().numeric);
  EXPECT_EQ((std::vector<float>{x[0], x[3], x[6], x[9]}), (std::vector<float>{12, 7.5, 8, 9}));
  EXPECT_EQ((std::vector<float>{x[1], x[4], x[7], x[10]}),
            (std::vector<float>{-1.2F, 3, -1, -2.5}));
  EXPECT_EQ((std::vector<float>{x[2], x[5], x[11]}), (std::vector<float>{5, -2, 7.25}));
  EXPECT_EQ(copy(d->train().target_numeric), (std::vector<float>{3, -4, 5, -6}));
  const auto rows = parse_raw_rows(d->schema(), "csv", "weight,profit,share\n3 kg,(4),1\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->numeric, (std::vector<float>{3, -4, 1}));
  const auto pounds = parse_raw_rows(d->schema(), "csv", "weight,profit,share\n3 lb,(4),1\n");
  EXPECT_NE(pounds.error().message.find("'3 lb' is not a number, with or without 'kg'"),
            std::string::npos)
      << pounds.error().message;
  const Result<DatasetSchema> read = parse_schema(schema_text(d->schema()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->columns[0].unit, "kg");
  EXPECT_FALSE(IngestedCsv(csv_options("y"), "a,y\n1,2.5\n2,3.5\n")->schema().columns[0].unit);
}

TEST(NumberSpelling, MistakesInItsSettingsAreRefused) {
  const auto message = [](auto change, std::string_view text = "w,y\n1 kg,a\n2 lb,b\n") {
    CsvOptions options = csv_options("y");
    change(options);
    return IngestedCsv(options, text).message();
  };
  const auto starts = [](const std::string& text, std::string_view with) {
    EXPECT_TRUE(text.starts_with(with)) << text;
  };
  starts(message([](CsvOptions& o) { o.numbers = {"w"}; }),
         "csv.numbers: 'w' has numbers in 'kg' and in 'lb', expected one unit");
  starts(message([](CsvOptions& o) { o.numbers = {"v"}; }), "csv.numbers: 'v' is not a column");
  starts(message([](CsvOptions& o) { o.numbers = o.ignore = {"w"}; }),
         "csv.numbers: 'w' is in csv.ignore too");
  starts(message([](CsvOptions& o) { o.decimal = ";"; }), "csv.decimal: ';', expected");
  starts(message([](CsvOptions& o) { o.thousands = "x"; }), "csv.thousands: 'x', expected");
  starts(message([](CsvOptions& o) { o.decimal = o.thousands = ","; }),
         "csv.thousands: ',' is the decimal mark too");
  starts(message([](CsvOptions&) {}, "w,y\n1,a\n2,b\n(3),a\n"),
         "data: row 3 (line 4), column 'w': '(3)' is not a plain number; if the column has numbers "
         "with a unit or in parentheses, list it in `numbers`");
  starts(message([](CsvOptions& o) { o.delimiter = ';'; }, "w;y\n1;a\n2;b\n0,5;a\n"),
         "data: row 3 (line 4), column 'w': '0,5' is not a plain number; if the file's numbers are "
         "written so, set `decimal` and `thousands`");
}

TEST(NumberSpelling, CategoriesThatAreNumbersAreReportedWithTheSetting) {
  CsvOptions options = csv_options("y");
  options.delimiter = ';';
  const IngestedCsv commas(options, "x;y\n0,078;a\n1,5;b\n");
  ASSERT_TRUE(commas.ok()) << commas.message();
  EXPECT_NE(warning_of(commas->schema(), "NUMBERS_AS_CATEGORIES")
                .message.find("set dataset.csv.decimal: \",\""),
            std::string::npos);
  const IngestedCsv percent(csv_options("y"), "x,y\n5 %,a\n7 %,b\n");
  EXPECT_NE(warning_of(percent->schema(), "NUMBERS_AS_CATEGORIES")
                .message.find("list the column in dataset.csv.numbers"),
            std::string::npos);
  const IngestedCsv names(csv_options("y"),
                          "x,grade,age,y\n5A,Grade 1,18-25,a\n7A,Grade 2,26-40,b\n");
  EXPECT_TRUE(names->schema().warnings.empty());
}

TEST(NumberSpelling, NamesRangesAndBoundsAreNoNumbers) {
  using List = std::vector<std::string_view>;
  const auto is_number = [](const List& texts) { return find_spelling(texts, ',').has_value(); };
  EXPECT_FALSE(is_number({"50-", "55-", "60-"})) << "the begins of ranges";
  EXPECT_FALSE(is_number({"0", "1", "2", "3+"}));
  EXPECT_FALSE(is_number({"<5", "7", "9"}));
  EXPECT_FALSE(is_number({"18-25", "26-30"}));
  EXPECT_FALSE(is_number({"5A", "6A", "7A"}));
  EXPECT_FALSE(is_number({"1,2,3", "4,5"}));
  EXPECT_FALSE(is_number({"2026-01-31"}));
  EXPECT_TRUE(is_number({"(5)", "3"}));
  EXPECT_TRUE(is_number({"5-", "3"}));
  EXPECT_TRUE(is_number({"1,200", "3"}));
}

TEST(Dates, ColumnsShowTheirOrder) {
  CsvOptions options = csv_options("y");
  options.date = {"d"};
  const auto first = [&](const std::string& cells) {
    const IngestedCsv d(options, "d,y\n" + cells);
    if (!d.ok()) return d.message();
    return std::string(name_of(d->schema().columns[0].date_order)) + " " +
           std::to_string(static_cast<int64_t>(d->train().numeric[0]));
  };
  EXPECT_EQ(first("2012/01/01,a\n2012/1/31,b\n"), " 15340");
  EXPECT_EQ(first("28.02.2024,a\n01.03.2024,b\n"), "day_first 19781");
  EXPECT_EQ(first("10/16/2009,a\n01/02/2010,b\n"), "month_first 14533");
  EXPECT_EQ(first("6-Aug-09,a\n12-Sep-10,b\n"), " 14462");
  EXPECT_EQ(first("Jan 1 2000,a\n\"January 12, 2000\",b\n"), " 10957");
  EXPECT_EQ(first("1 sept. 1970,a\n2 October 70,b\n"), " 243");
  EXPECT_EQ(first("02:31:38,a\n26:10,b\n"), "time 2");
  const std::string unclear = first("01/02/2009,a\n03/04/2010,b\n");
  EXPECT_NE(unclear.find("Set csv.date_order: day_first or month_first"), std::string::npos);
  options.date_order = "day_first";
  EXPECT_EQ(first("01/02/2009,a\n03/04/2010,b\n"), "day_first 14276");
  EXPECT_EQ(first("10/16/2009,a\n01/02/2010,b\n"), "month_first 14533") << "they show their order";
}

TEST(Dates, RowsToPredictHaveTheOrderOfTheTrainingData) {
  CsvOptions options = csv_options("y");
  options.date = {"d"};
  const IngestedCsv d(options, "d,y\n28.02.2024,a\n01.03.2024,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const auto rows = parse_raw_rows(d->schema(), "csv", "d\n03.04.2024\n2024-04-03\n3 Apr 2024\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->numeric[0], 19816);
  EXPECT_EQ(rows->numeric[5], 19816);
  EXPECT_EQ(rows->numeric[10], 19816);
  const auto bad = parse_raw_rows(d->schema(), "csv", "d\n04/13/2024\n");
  EXPECT_NE(bad.error().message.find("with the day first"), std::string::npos);
  const Result<DatasetSchema> read = parse_schema(schema_text(d->schema()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->columns[0].date_order, DateOrder::kDayFirst);
}

TEST(Dates, TimesAloneBecomeHoursAndAPlaceInTheDay) {
  CsvOptions options = csv_options("y");
  options.date = {"t"};
  const IngestedCsv d(options, "t,y\n06:00,a\n30:30:00,b\n11:30 PM,a\n");
  ASSERT_TRUE(d.ok()) << d.message();
  ASSERT_EQ(d->schema().columns.size(), 3u);
  EXPECT_EQ(d->schema().columns[0].name, "t.hours");
  const std::vector<float> x = copy(d->train().numeric);
  EXPECT_EQ(x[0], 6);
  EXPECT_NEAR(x[1], 1, 1e-6);
  EXPECT_EQ(x[3], 30.5F);
  EXPECT_EQ(x[6], 23.5F);
}

TEST(Dates, MixedZonesAreReported) {
  CsvOptions options = csv_options("y");
  options.date = {"d"};
  const IngestedCsv d(options,
                      "d,y\n2026-03-29T02:30:00+01:00,a\n2026-03-29T02:30:00Z,b\n"
                      "2026-03-29T02:30:00,a\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(warning_of(d->schema(), "MIXED_ZONES").columns, Names{"d"});
  const IngestedCsv same(options, "d,y\n2026-03-29T02:30:00+01:00,a\n2026-03-29T02:30:00Z,b\n");
  EXPECT_TRUE(warning_of(same->schema(), "MIXED_ZONES").key.empty());
}

TEST(Dates, OtherTextsAreNoDates) {
  for (const char* text :
       {"1.2.3", "12-34-56", "2009-13-01", "31/31/2009", "Mayor 1 2000", "1 May", "5", "12:60",
        "10:5", "2009-1-1", "30 Feb 2001", "Jan 2000", "1/2/200"}) {
    EXPECT_EQ(possible_orders(text), 0) << text;
  }
}

}  // namespace
}  // namespace trainyard
