// The tests fail if a column that would mislead the model has no warning, or if a good column has
// one.
#include "src/data/table/column_facts.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

using ColumnKind = ColumnFacts::Kind;

ColumnFacts texts(int64_t rows, int64_t distinct) {
  return {.kind = ColumnKind::kCategorical,
          .name = "note",
          .rows = rows,
          .distinct = distinct,
          .words_mean = 1};
}

ColumnFacts whole_numbers(std::string name, int64_t rows, int64_t distinct) {
  return {.name = std::move(name), .rows = rows, .distinct = distinct, .whole = true};
}

TEST(ColumnFacts, TextsThatDifferAreIdentifiersOrTooManyCategories) {
  EXPECT_EQ(find_column_trap(texts(891, 891)), ColumnTrap::kIdentifier);
  EXPECT_EQ(find_column_trap(texts(1000, 900)), ColumnTrap::kIdentifier);
  EXPECT_EQ(find_column_trap(texts(891, 681)), ColumnTrap::kManyCategories);
  EXPECT_EQ(find_column_trap(texts(1000, 500)), std::nullopt) << "two rows each";
  EXPECT_EQ(find_column_trap(texts(891, 3)), std::nullopt);
}

TEST(ColumnFacts, OnlyPresentValuesCount) {
  ColumnFacts cabin = texts(891, 147);
  EXPECT_EQ(find_column_trap(cabin), std::nullopt);
  cabin.missing = 687;
  EXPECT_EQ(find_column_trap(cabin), ColumnTrap::kManyCategories);
}

TEST(ColumnFacts, FewRowsAreNotJudged) {
  EXPECT_EQ(find_column_trap(texts(kRowsToJudge - 1, kRowsToJudge - 1)), std::nullopt);
  EXPECT_EQ(find_column_trap(texts(kRowsToJudge, kRowsToJudge)), ColumnTrap::kIdentifier);
  EXPECT_EQ(find_column_trap(whole_numbers("id", 10, 10)), std::nullopt);
}

TEST(ColumnFacts, TextsAndDatesAreRecognized) {
  ColumnFacts review = texts(1000, 998);
  review.words_mean = 20;
  EXPECT_EQ(find_column_trap(review), ColumnTrap::kFreeText);
  ColumnFacts phrase = texts(1000, 4);  // such as "strongly agree with the statement"
  phrase.words_mean = 5;
  EXPECT_EQ(find_column_trap(phrase), std::nullopt);
  ColumnFacts day = texts(100000, 365);
  day.dates = true;
  EXPECT_EQ(find_column_trap(day), ColumnTrap::kDates);
  day.distinct = 3;
  EXPECT_EQ(find_column_trap(day), std::nullopt) << "three days are categories";
}

TEST(ColumnFacts, NumbersIdentifyRowsByTheirNameOrBecauseTheyCountThem) {
  EXPECT_EQ(find_column_trap(whole_numbers("customer_id", 500, 500)), ColumnTrap::kIdentifier);
  EXPECT_EQ(find_column_trap(whole_numbers("customer_no", 500, 500)), ColumnTrap::kIdentifier);
  EXPECT_EQ(find_column_trap(whole_numbers("shop_id", 500, 12)), std::nullopt);
  EXPECT_EQ(find_column_trap(whole_numbers("area", 500, 500)), std::nullopt)
      << "an amount for all that is known, even if it rises";
  ColumnFacts counted = whole_numbers("n", 500, 500);
  counted.counts_rows = true;
  EXPECT_EQ(find_column_trap(counted), ColumnTrap::kIdentifier);
  counted.name = "score";
  EXPECT_EQ(find_column_trap(counted), std::nullopt) << "a table may list every score";
  EXPECT_EQ(find_column_trap(whole_numbers("Unnamed: 0", 500, 500)), ColumnTrap::kIdentifier)
      << "an index, maybe shuffled";
  ColumnFacts length = whole_numbers("item_no", 500, 500);
  length.whole = false;
  EXPECT_EQ(find_column_trap(length), std::nullopt);
  length.whole = true;
  length.distinct = std::nullopt;
  EXPECT_EQ(find_column_trap(length), std::nullopt) << "not counted";
}

TEST(ColumnFacts, ConstantAndEmptyColumns) {
  ColumnFacts c = texts(20, 1);
  EXPECT_EQ(find_column_trap(c), ColumnTrap::kConstant);
  c.missing = 5;
  EXPECT_EQ(find_column_trap(c), std::nullopt) << "present or missing is information";
  c.kind = ColumnKind::kNumeric;
  EXPECT_EQ(find_column_trap(c), ColumnTrap::kConstant) << "a missing number is the mean";
  c.missing = 20;
  c.distinct = 0;
  EXPECT_EQ(find_column_trap(c), ColumnTrap::kEmpty);
  EXPECT_EQ(find_column_trap(texts(0, 0)), std::nullopt);
  EXPECT_EQ(find_column_trap(texts(1, 1)), std::nullopt) << "of one row nothing is known";
}

TEST(ColumnFacts, SentencesNameColumnCountAndField) {
  ColumnFacts c = texts(891, 890);
  c.example = "Braund";
  EXPECT_EQ(describe(ColumnTrap::kIdentifier, c, "csv"),
            "column 'note' is read as categories, one for each different text, and 890 of 891 "
            "values differ, such as 'Braund', as IDs do: a model can memorize them, but new rows "
            "have other values. Leave it out: list it in dataset.csv.ignore.");
  EXPECT_EQ(count_of(ColumnTrap::kIdentifier, c), 890);
  for (const ColumnTrap trap :
       {ColumnTrap::kEmpty, ColumnTrap::kConstant, ColumnTrap::kDates, ColumnTrap::kFreeText,
        ColumnTrap::kIdentifier, ColumnTrap::kManyCategories}) {
    EXPECT_NE(describe(trap, c, "jsonl").find("'note'"), std::string::npos);
    EXPECT_NE(describe(trap, c, "jsonl").find("dataset.jsonl.ignore"), std::string::npos);
    EXPECT_EQ(describe(trap, c, "").find("dataset."), std::string::npos) << key_of(trap);
    EXPECT_FALSE(key_of(trap).empty());
  }
}

}  // namespace
}  // namespace trainyard
