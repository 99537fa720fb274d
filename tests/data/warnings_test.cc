// The tests fail if ingest gives no warning for a problem of a dataset or gives one for good data,
// or if warnings are lost between the ingest and the readers of the dataset.
#include "src/data/warnings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "src/data/row_copies.h"
#include "src/data/statistics.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

/// Returns the header and a line for each row.
std::string table(const std::string& header, int rows, const std::function<std::string(int)>& row) {
  std::string text = header + "\n";
  for (int i = 0; i < rows; ++i) text += row(i) + "\n";
  return text;
}

std::string str(int i) { return std::to_string(i); }
/// Returns a pseudo-random number from 0 to 1 as text.
std::string noise(int i) { return std::to_string((i * 7919 % 1009) / 1009.0); }

/// Returns a text "KEY column,column" for each warning in the dataset's folder.
std::vector<std::string> warnings_of(const IngestedCsv& d) {
  EXPECT_TRUE(d.ok()) << d.message();
  std::vector<std::string> all;
  if (!d.ok()) return all;
  for (const DataWarning& w : d->schema().warnings) {
    std::string text = w.key;
    for (const std::string& column : w.columns) text += " " + column;
    all.push_back(text);
  }
  return all;
}
std::vector<std::string> warnings_of(const std::string& text, CsvOptions options = csv_options("y"),
                                     std::optional<std::string_view> test = std::nullopt) {
  return warnings_of(IngestedCsv(options, text, test));
}

using Keys = std::vector<std::string>;

TEST(DataWarnings, ColumnsOfLittleUse) {
  const std::string text = table("row,name,day,fixed,empty,size,y", 60, [](int i) {
    const std::string day =
        "2026-" + std::string(i < 30 ? "01-" : "02-") + (i % 28 < 9 ? "0" : "") + str(i % 28 + 1);
    return str(i) + ",n" + str(i) + "," + day + ",7,," + noise(i) + "," + str(i * 37 % 3);
  });
  EXPECT_EQ(warnings_of(text),
            (Keys{"EMPTY_COLUMN empty", "CONSTANT_COLUMN fixed", "DATES_AS_CATEGORIES day",
                  "IDENTIFIER_COLUMN row", "IDENTIFIER_COLUMN name"}));
  CsvOptions options = csv_options("y");
  options.ignore = {"row", "name", "fixed", "empty"};
  options.date = {"day"};
  EXPECT_EQ(warnings_of(text, options), Keys{}) << "what the sentences say to do";
}

TEST(DataWarnings, SentencesSayWhatToDo) {
  const IngestedCsv d(csv_options("y"), table("fixed,size,y", 30, [](int i) {
                        return "7," + noise(i) + "," + str(i % 2);
                      }));
  ASSERT_TRUE(d.ok()) << d.message();
  ASSERT_EQ(d->schema().warnings.size(), 1u);
  const DataWarning& w = d->schema().warnings[0];
  EXPECT_EQ(w.count, 30);
  EXPECT_EQ(
      w.message,
      "column 'fixed' has the same value in all 30 rows, '7': it has no information for the model. "
      "Leave it out: list it in dataset.csv.ignore.");
}

TEST(DataWarnings, ManyColumnsWithOneProblemShareAWarning) {
  const IngestedCsv d(csv_options("y"), table("a,b,c,d,size,y", 30, [](int i) {
                        return "1,2,3,4," + noise(i) + "," + str(i % 2);
                      }));
  EXPECT_EQ(warnings_of(d), Keys{"CONSTANT_COLUMN a b c d"});
  const std::string& message = d->schema().warnings[0].message;
  EXPECT_TRUE(message.starts_with("4 columns are like this one: column 'a'")) << message;
  EXPECT_TRUE(message.ends_with("The others: 'b', 'c', 'd'")) << message;
}

TEST(DataWarnings, AColumnThatRevealsTheClass) {
  const auto rows = [](const std::function<std::string(int)>& leak) {
    return table("leak,size,y", 400, [&](int i) {
      return leak(i) + "," + noise(i) + "," + (i * 7919 % 5 < 2 ? "yes" : "no");
    });
  };
  const auto is_yes = [](int i) { return i * 7919 % 5 < 2; };
  EXPECT_EQ(warnings_of(rows([&](int i) { return is_yes(i) ? "alive" : "dead"; })),
            Keys{"TARGET_LEAK leak"});
  EXPECT_EQ(warnings_of(rows([&](int i) { return is_yes(i) ? "1" : "0"; })),
            Keys{"TARGET_LEAK leak"});
  EXPECT_EQ(warnings_of(rows([&](int i) { return is_yes(i) ? "" : "boat"; })),
            Keys{"TARGET_LEAK leak"})
      << "missing tells it";
  EXPECT_EQ(warnings_of(rows([&](int i) { return str(is_yes(i) ? 5 : 9) + "." + str(i + 100); })),
            Keys{"TARGET_LEAK leak"})
      << "the ranges lie apart";
  EXPECT_EQ(warnings_of(rows([&](int i) { return i % 20 == 0 || !is_yes(i) ? "dead" : "alive"; })),
            Keys{})
      << "one in twenty differs";
  EXPECT_EQ(warnings_of(rows([&](int i) { return str((is_yes(i) ? 5 : 0) + i % 7) + ".5"; })),
            Keys{})
      << "the ranges overlap";
}

TEST(DataWarnings, AColumnWhoseOffsetRoundsRevealsTheClass) {
  // The largest number minus the offset is 3, but 3 plus the offset rounds to 134217730.5.
  EXPECT_EQ(warnings_of(table("leak,size,y", 70,
                              [](int i) {
                                const int k = i % 6;
                                return str(134217724 + k + (k < 3 ? 0 : 1)) +
                                       (k < 5 ? ".5" : ".50000003") + "," + noise(i) +
                                       (k < 3 ? ",yes" : ",no");
                              })),
            Keys{"TARGET_LEAK leak"});
}

TEST(DataWarnings, FewRowsOrManyValuesGiveNoWarning) {
  // 20 rows are too few to conclude anything; and with 60 values in 240 rows, values determine the
  // class by chance.
  EXPECT_EQ(
      warnings_of(table("a,size,y", 20,
                        [](int i) { return str(i % 2) + "," + noise(i) + "," + str(i % 2); })),
      Keys{});
  CsvOptions options = csv_options("y");
  options.categorical = {"a"};
  EXPECT_EQ(warnings_of(table("a,size,y", 240,
                              [](int i) {
                                return str(i / 4) + "," + noise(i) + "," + str(i / 4 * 7919 % 3);
                              }),
                        options),
            Keys{});
}

TEST(DataWarnings, AColumnThatRevealsANumericTarget) {
  const auto rows = [](double noise_size) {
    return table("copy,size,y", 100, [&](int i) {
      const double y = i * 7919 % 1009 / 10.0;
      const double off = noise_size * (i * 31 % 17 - 8);
      return std::to_string(2.2 * y + 3 + off) + "," + noise(i * 3 + 1) + "," + std::to_string(y);
    });
  };
  EXPECT_EQ(warnings_of(rows(0.01)), Keys{"TARGET_LEAK copy"});
  EXPECT_EQ(warnings_of(rows(2)), Keys{});
}

TEST(DataWarnings, AColumnThatRevealsANumericTargetByAFormula) {
  const auto y = [](int i) { return 20 + i * 7919 % 1009; };
  const auto rows = [&](const char* header, const std::function<double(int)>& leak) {
    return table(header, 100, [&](int i) {
      return std::to_string(leak(i)) + "," + noise(i * 3 + 1) + "," + str(y(i));
    });
  };
  EXPECT_EQ(warnings_of(rows("logy,size,y", [&](int i) { return std::log(y(i)); })),
            Keys{"TARGET_LEAK logy"});
  EXPECT_EQ(warnings_of(rows("part,size,y", [&](int i) { return 1e6 / y(i) / y(i); })),
            Keys{"TARGET_LEAK part"});
  EXPECT_EQ(warnings_of(rows("near,size,y", [&](int i) { return std::log(y(i)) + i % 7 * 0.02; })),
            Keys{})
      << "some rows are not in order";
  EXPECT_EQ(warnings_of(table(
                "year,size,y", 100,
                [&](int i) { return str(1900 + i) + "," + noise(i) + "," + str(i * i + 7); })),
            Keys{})
      << "what grows from year to year does not follow from the year";
}

TEST(DataWarnings, AThresholdRevealsTheClassInFewRowsToo) {
  const auto rows = [](double gap) {
    return table("weight,size,y", 100, [gap](int i) {
      const int weight = i * 7919 % 1009;
      return std::to_string(weight + (weight < 400 ? 0.0 : gap)) + "," + noise(i * 3 + 1) + "," +
             (weight < 400 ? "low" : "high");
    });
  };
  EXPECT_EQ(warnings_of(rows(0)), Keys{"TARGET_LEAK weight"});
  EXPECT_EQ(warnings_of(rows(300)), Keys{}) << "two kinds that differ in weight, such as species";
}

TEST(DataWarnings, IdentifiersAreRecognizedByWhatTheyAre) {
  const auto rows = [](const std::string& header, const std::function<int(int)>& first) {
    return table(header + ",size,y", 60,
                 [&](int i) { return str(first(i)) + "," + noise(i) + "," + str(i * 37 % 3); });
  };
  const auto shuffled = [](int i) { return 14289 + i * 37 % 61; };
  for (const char* name : {"rownames", "customer_no", "PatientNr", "id"}) {
    EXPECT_EQ(warnings_of(rows(name, shuffled)), Keys{"IDENTIFIER_COLUMN " + std::string(name)});
  }
  EXPECT_EQ(warnings_of(rows("", shuffled)), Keys{"IDENTIFIER_COLUMN Unnamed: 0"});
  EXPECT_EQ(warnings_of(rows("n", [](int i) { return i + 1; })), Keys{"IDENTIFIER_COLUMN n"});
  EXPECT_EQ(warnings_of(rows("score", [](int i) { return i; })), Keys{});
  EXPECT_EQ(warnings_of(rows("area", [](int i) { return 100 + i * 5; })), Keys{}) << "it rises";
  EXPECT_EQ(warnings_of(rows("Wealth", [](int i) { return 1 + i * 37 % 60; })), Keys{})
      << "ranks, in any order";
}

TEST(DataWarnings, NumbersWithAnOffsetMayCountTheRows) {
  const auto counts_from = [](float first) {
    DatasetSchema schema;
    schema.columns.resize(1);
    schema.columns[0].name = "n";
    schema.columns[0].offset = 100;
    schema.target.kind = TargetSchema::Kind::kNumeric;
    TypedRows train;
    for (; train.rows < 60; ++train.rows) {
      train.numeric.push_back(first + static_cast<float>(train.rows));
      train.target_numeric.push_back(static_cast<float>(train.rows % 7));
    }
    return find_column_facts(schema, measure(schema, train), train).at(0).counts_rows;
  };
  EXPECT_TRUE(counts_from(-99));
  EXPECT_TRUE(counts_from(-100));
  EXPECT_FALSE(counts_from(1)) << "the first number is 101";
}

TEST(DataWarnings, RareClasses) {
  const auto rows = [](int rare) {
    return table("size,y", 100 + rare,
                 [](int i) { return noise(i) + "," + (i >= 100 ? "rare" : str(i % 2)); });
  };
  EXPECT_EQ(warnings_of(rows(kClassRowsMin - 1)), Keys{"RARE_CLASSES"});
  EXPECT_EQ(warnings_of(rows(kClassRowsMin)), Keys{});
}

TEST(DataWarnings, TestRowsAmongTheTrainingRows) {
  const auto rows = [](int first, int count) {
    return table("a,b,y", count, [first](int i) {
      return noise(i + first) + "," + noise((i + first) * 5) + "," + str((i + first) % 2);
    });
  };
  EXPECT_EQ(warnings_of(rows(0, 200), csv_options("y"), rows(195, 100)),
            Keys{"TEST_ROWS_IN_TRAINING_SET"});
  EXPECT_EQ(warnings_of(rows(0, 200), csv_options("y"), rows(200, 100)), Keys{});
}

TEST(DataWarnings, OtherFormats) {
  // Streams, texts and images have no warnings about columns; in the IDX file one class has no row.
  const IngestedText text("the cat sat on the mat, the cat sat on the mat");
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_TRUE(text->schema().warnings.empty());
  const std::string labels = std::string(29, '\0') + "\2";
  const IngestedIdx idx(idx_file(8, {30, 1, 1}, std::string(30, 'a')), idx_file(8, {30}, labels));
  ASSERT_TRUE(idx.ok()) << idx.message();
  ASSERT_EQ(idx->schema().warnings.size(), 1u);
  EXPECT_EQ(idx->schema().warnings[0].message.substr(0, 80),
            "2 of 3 classes occur in fewer than 10 training rows: '1' has 0, '2' has 1. A mod");
}

/// Rows of a single number each, with a class.
struct NumberRows {
  std::vector<float> numbers;
  std::vector<int32_t> classes;
  std::vector<int64_t> rows;
  NumberRows(std::vector<float> n, std::vector<int32_t> c)
      : numbers(std::move(n)), classes(std::move(c)) {
    for (size_t i = 0; i < numbers.size(); ++i) rows.push_back(static_cast<int64_t>(i));
  }
  Partition view() const {
    Partition p;
    p.rows = std::ssize(rows);
    p.numeric = numbers;
    p.target_class = classes;
    return p;
  }
};

RowCopies copies_of(const NumberRows& seen, const NumberRows& held_out) {
  DatasetSchema schema;
  schema.columns = {{ColumnSchema::Kind::kNumeric, "x", {}}};
  return count_copies(schema, seen.view(), seen.rows, held_out.view(), held_out.rows);
}

TEST(RowCopies, CountsRowsSeenWithTheSameTarget) {
  const RowCopies c = copies_of({{1, 2, 2, 3}, {0, 1, 1, 0}}, {{2, 2, 3, 4, 1}, {1, 1, 1, 0, 0}});
  EXPECT_EQ(c.rows, 5);
  EXPECT_EQ(c.copies, 4);
  EXPECT_EQ(c.same_target, 3) << "3 has another target";
  EXPECT_FALSE(c.matter()) << "one of four differs: rows that are alike by chance";
  // A number that occurs with several targets does not count.
  EXPECT_EQ(copies_of({{2, 2}, {0, 1}}, {{2}, {1}}).same_target, 0);
}

TEST(RowCopies, FewOfManyDoNotMatter) {
  EXPECT_TRUE((RowCopies{100, 1, 1}).matter());
  EXPECT_FALSE((RowCopies{101, 1, 1}).matter());
  EXPECT_FALSE((RowCopies{100, 0, 0}).matter());
  EXPECT_TRUE((RowCopies{100, 100, 95}).matter());
  EXPECT_FALSE((RowCopies{100, 100, 94}).matter());
}

}  // namespace
}  // namespace trainyard
