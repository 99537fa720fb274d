// The tests fail if a class loses all of its training rows although it has two, shares are less
// even than whole numbers allow, groups or times are torn apart, folds overlap or lack a row, or
// the counts that planning takes from the schema are not those of the split.
#include "src/data/load/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "src/data/class_draw.h"
#include "src/data/test_share.h"
#include "src/data/warnings.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

using Counts = std::vector<int64_t>;

std::vector<int32_t> classes_of(const Counts& class_rows) {
  std::vector<int32_t> classes;
  for (size_t k = 0; k < class_rows.size(); ++k) {
    classes.insert(classes.end(), static_cast<size_t>(class_rows[k]), static_cast<int32_t>(k));
  }
  // So that the rows of a class are not adjacent.
  std::ranges::reverse(classes);
  std::ranges::rotate(classes, classes.begin() + std::ssize(classes) / 3);
  return classes;
}

Counts count_by_class(const std::vector<int32_t>& classes, const std::vector<bool>& drawn,
                      size_t count) {
  Counts counts(count);
  for (size_t i = 0; i < classes.size(); ++i) {
    counts[static_cast<size_t>(classes[i])] += drawn[i] ? 1 : 0;
  }
  return counts;
}

int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

const std::vector<Counts> kClassRows = {{49, 49, 2},          {98, 2},   {1, 1, 1, 97}, {2, 2},
                                        {5, 5, 5, 5, 5, 5},   {1000, 3}, {1, 1},        {7},
                                        {3, 1, 4, 1, 5, 9, 2}};

TEST(ClassDraw, SharesAreAsEvenAsWholeNumbersAllow) {
  for (const Counts& class_rows : kClassRows) {
    const std::vector<int32_t> classes = classes_of(class_rows);
    for (const double share : {0.0, 0.1, 0.15, 0.2, 0.5, 0.9}) {
      for (const uint64_t seed : {0, 1, 2, 3}) {
        const DrawKey key{seed, "split"};
        const Counts drawn = count_drawn_by_class(class_rows, share, key);
        EXPECT_EQ(count_by_class(classes, draw_by_class(classes, share, key), class_rows.size()),
                  drawn);
        EXPECT_EQ(sum(drawn), count_drawn(class_rows, share));
        const bool has_room = sum(class_rows) - std::ssize(class_rows) >=
                              std::llround(share * static_cast<double>(sum(class_rows)));
        if (has_room) {
          EXPECT_EQ(sum(drawn), std::llround(share * static_cast<double>(sum(class_rows))));
        }
        for (size_t k = 0; k < drawn.size(); ++k) {
          EXPECT_LT(drawn[k], class_rows[k]) << "each class keeps a row";
          if (share > 0.5 || class_rows[k] == 1) continue;
          EXPECT_GE(drawn[k], std::floor(share * static_cast<double>(class_rows[k]))) << share;
        }
      }
    }
  }
}

// scikit-learn's StratifiedShuffleSplit draws these numbers (1.9.1, test_size=0.2, any
// random_state).
TEST(ClassDraw, CountsAreThoseOfScikitLearn) {
  const auto drawn = [](const Counts& rows) {
    return count_drawn_by_class(rows, 0.2, {3, "split"});
  };
  EXPECT_EQ(drawn({200, 50, 25}), (Counts{40, 10, 5}));
  EXPECT_EQ(drawn({7, 13, 29, 4}), (Counts{1, 3, 6, 1}));
  EXPECT_EQ(drawn({49, 49, 2}), (Counts{10, 10, 0}));
  EXPECT_EQ(drawn({5, 5, 5, 5, 5, 5}), Counts(6, 1));
}

TEST(ClassDraw, EqualRemaindersAreDrawnByTheSeed) {
  std::set<Counts> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Counts drawn = count_drawn_by_class(Counts(10, 3), 0.1, {seed, "split"});
    EXPECT_EQ(sum(drawn), 3);
    EXPECT_LE(std::ranges::max(drawn), 1);
    seen.insert(drawn);
  }
  EXPECT_GT(seen.size(), 5u);
}

TEST(ClassDraw, EachRowOfAClassWithSeveralIsInOneFold) {
  for (const Counts& class_rows : kClassRows) {
    const std::vector<int32_t> classes = classes_of(class_rows);
    for (const int64_t folds : {2, 3, 5}) {
      std::vector<int> times(classes.size());
      std::vector<Counts> all;
      for (int64_t fold = 0; fold < folds; ++fold) {
        const std::vector<bool> drawn = draw_fold_by_class(classes, folds, fold, {4, "split"});
        for (size_t i = 0; i < drawn.size(); ++i) times[i] += drawn[i] ? 1 : 0;
        all.push_back(count_by_class(classes, drawn, class_rows.size()));
        EXPECT_EQ(all.back(), count_fold_by_class(class_rows, folds, fold));
      }
      for (size_t i = 0; i < times.size(); ++i) {
        EXPECT_EQ(times[i], class_rows[static_cast<size_t>(classes[i])] > 1 ? 1 : 0);
      }
      Counts sizes;
      for (const Counts& counts : all) sizes.push_back(sum(counts));
      EXPECT_LE(std::ranges::max(sizes) - std::ranges::min(sizes), 1);
      for (size_t k = 0; k < class_rows.size(); ++k) {
        const auto [least, most] =
            std::ranges::minmax(all, {}, [k](const Counts& counts) { return counts[k]; });
        EXPECT_LE(most[k] - least[k], 1);
      }
    }
  }
}

TEST(TestShare, TakesTheShareOfTheWholeAlsoFromSmallClasses) {
  const std::vector<int32_t> classes = classes_of(Counts(50, 4));
  EXPECT_EQ(std::ranges::count(draw_test_rows(classes, 0.1, 7), true), 20);
}

// A table of `rows` rows: a number, the group of 1 to 4 rows that it belongs to, a date that falls
// with the row, and a class. Rows have this text: "3,g1,2026-01-27,b".
std::string table(int rows) {
  std::string text = "x,group,day,y\n";
  for (int i = 0; i < rows; ++i) {
    const int day = 28 - i % 28;
    text += std::to_string(i) + ",g" + std::to_string(i * i % 7) + ",2026-0" +
            std::to_string(1 + i % 5) + (day < 10 ? "-0" : "-") + std::to_string(day) +
            (i % 3 == 0 ? ",a\n" : ",b\n");
  }
  return text;
}

IngestedCsv ingest_with_columns(const std::string& text) {
  CsvOptions options = csv_options("y");
  options.ignore = {"group"};
  options.date = {"day"};
  options.group = "group";
  options.time = "day";
  return IngestedCsv(options, text);
}

Split split_of(const IngestedCsv& d, const SplitRule& rule) {
  Split split = split_dataset(d->schema(), d->train(), 0, rule);
  EXPECT_EQ(std::ssize(split.validation), count_validation_rows(d->schema(), rule));
  std::vector<int64_t> all = split.train;
  all.insert(all.end(), split.validation.begin(), split.validation.end());
  std::ranges::sort(all);
  std::vector<int64_t> rows(static_cast<size_t>(d->schema().train_rows));
  std::iota(rows.begin(), rows.end(), 0);
  EXPECT_EQ(all, rows);
  EXPECT_TRUE(std::ranges::is_sorted(split.train));
  EXPECT_TRUE(std::ranges::is_sorted(split.validation));
  return split;
}

TEST(Split, OfAClassTargetIsByClass) {
  const IngestedCsv d = ingest_with_columns(table(100));
  ASSERT_TRUE(d.ok()) << d.message();
  const SplitRule rule{0.2, 5};
  ASSERT_TRUE(splits_by_class(d->schema(), rule));
  const Split split = split_of(d, rule);
  EXPECT_EQ(count_classes(d->schema(), d->train(), split.validation), (Counts{7, 13}));
  EXPECT_EQ(count_classes(d->schema(), d->train(), split.train),
            count_training_classes(d->schema(), rule));
}

// The case tables/23: of three classes one has two rows. A split of all rows at random held out
// both of them for some seeds.
TEST(Split, ARareClassKeepsARowForEverySeed) {
  std::string text = "x,y\n";
  for (int i = 0; i < 98; ++i) text += std::to_string(i) + (i % 2 == 0 ? ",a\n" : ",b\n");
  text += "98,c\n99,c\n";
  const IngestedCsv d(csv_options("y"), text);
  ASSERT_TRUE(d.ok()) << d.message();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SplitRule rule{0.5, seed};
    const Counts trained = count_classes(d->schema(), d->train(), split_of(d, rule).train);
    EXPECT_EQ(sum(trained), 50);
    EXPECT_GE(std::min(trained[0], trained[1]), 24);
    EXPECT_EQ(trained[2], 1);
    const auto warning = find_rare_classes(d->schema(), trained);
    ASSERT_TRUE(warning.has_value());
    EXPECT_NE(warning->message.find("'c' has 1."), std::string::npos) << warning->message;
  }
}

TEST(Split, ByGroupKeepsGroupsTogether) {
  const IngestedCsv d = ingest_with_columns(table(100));
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(sum(d->schema().split.group_rows), 100);
  std::set<std::vector<int64_t>> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Split split = split_of(d, {0.3, seed, "group"});
    std::set<int32_t> held, trained;
    for (const int64_t row : split.validation)
      held.insert(d->train().group[static_cast<size_t>(row)]);
    for (const int64_t row : split.train)
      trained.insert(d->train().group[static_cast<size_t>(row)]);
    EXPECT_FALSE(held.empty());
    EXPECT_FALSE(trained.empty());
    for (const int32_t group : held) EXPECT_FALSE(trained.contains(group));
    seen.insert(split.validation);
  }
  EXPECT_GT(seen.size(), 3u) << "the seed draws the groups";
}

TEST(Split, ByGroupTakesAboutTheShare) {
  std::string text = "x,group,y\n";
  for (int i = 0; i < 600; ++i)
    text += std::to_string(i) + "," + std::to_string(i % 120) + "," + std::to_string(i) + ".5\n";
  CsvOptions options = csv_options("y");
  options.target_kind = "numeric";
  options.ignore = {"group"};
  options.group = "group";
  const IngestedCsv d(options, text);
  ASSERT_TRUE(d.ok()) << d.message();
  for (uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(std::ssize(split_of(d, {0.2, seed, "group"}).validation), 120);
  }
  EXPECT_EQ(std::ssize(split_of(d, {0.001, 0, "group"}).validation), 5) << "at least one group";
}

TEST(Split, ByGroupLeavesAGroupToTrainOn) {
  CsvOptions options = csv_options("y");
  options.group = "g";
  const IngestedCsv d(options, "g,x,y\np,1,a\np,2,b\nq,3,a\nq,4,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(split_of(d, {0.9, 0, "g"}).validation.size(), 2u);
}

TEST(Split, FoldsOfGroupsAreDisjointAndWhole) {
  const IngestedCsv d = ingest_with_columns(table(100));
  ASSERT_TRUE(d.ok()) << d.message();
  std::map<int64_t, int> times;
  for (int64_t fold = 1; fold <= 3; ++fold) {
    const Split split = split_of(d, {0, 9, "group", "", 3, fold});
    EXPECT_FALSE(split.validation.empty());
    for (const int64_t row : split.validation) ++times[row];
  }
  EXPECT_EQ(times.size(), 100u);
  for (const auto& [row, count] : times) EXPECT_EQ(count, 1);
}

TEST(Split, ByTimeHoldsOutTheLatestRows) {
  const IngestedCsv d = ingest_with_columns(table(100));
  ASSERT_TRUE(d.ok()) << d.message();
  const Split split = split_of(d, {0.25, 3, "", "day"});
  EXPECT_EQ(split.validation.size(), 25u);
  const auto time = [&](int64_t row) { return d->train().time[static_cast<size_t>(row)]; };
  const int32_t last = time(*std::ranges::max_element(split.train, {}, time));
  for (const int64_t row : split.validation) EXPECT_GE(time(row), last);
}

TEST(Split, NumbersAreTimesToo) {
  CsvOptions options = csv_options("y");
  options.time = "t";
  const IngestedCsv d(options, "t,y\n10,a\n9,b\n-1.5,a\n100,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(split_of(d, {0.5, 0, "", "t"}).validation, (std::vector<int64_t>{0, 3}));
}

TEST(Split, ColumnsComeFromJsonLinesToo) {
  IngestRequest request;
  request.format = "jsonl";
  request.csv = csv_options("y");
  request.csv.json_lines = true;
  request.csv.ignore = {"who"};
  request.csv.group = "who";
  const IngestedFiles d(request, {{"data", R"({"x": 1, "y": "a", "who": "p"}
{"x": 2, "y": "b", "who": 7}
{"x": 3, "y": "a", "who": 7.0}
{"x": 4, "y": "b"}
)"}});
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().split.group_rows, (Counts{1, 2, 1})) << "7 and 7.0 are one group";
}

TEST(Split, DecomposedNamesOfColumnsAreComposed) {
  CsvOptions options = csv_options("y");
  options.group = "cafe\u0301";
  options.time = "e\u0301te\u0301";
  options.numbers = {"poids a\u0300 vide"};
  const IngestedCsv d(options,
                      "caf\u00e9,\u00e9t\u00e9,poids \u00e0 vide,y\np,1,3 kg,a\nq,2,4 kg,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().split.group, "caf\u00e9");
  EXPECT_EQ(d->schema().split.time, "\u00e9t\u00e9");
}

TEST(Split, GroupsHaveShortNames) {
  CsvOptions options = csv_options("y");
  options.ignore = {"g"};
  options.group = "g";
  EXPECT_EQ(IngestedCsv(options, "g,x,y\np,1,a\n" + std::string(257, 'q') + ",2,b\n").message(),
            "data: row 2 (line 3), column 'g': a text of 257 bytes is too long for the name of a "
            "group (at most 256 bytes)");
}

TEST(Split, SkippedRowsHaveNoGroup) {
  CsvOptions options = csv_options("y");
  options.missing_target = "skip";
  options.group = "g";
  const IngestedCsv d(options, "g,x,y\np,1,a\nq,2,\np,3,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().split.group_rows, (Counts{2}));
}

TEST(Split, ColumnsThatCannotBeReadAreRefused) {
  const auto message = [](const std::string& text, const std::string& group,
                          const std::string& time) {
    CsvOptions options = csv_options("y");
    options.group = group;
    options.time = time;
    if (time == "t") options.ignore = {"t"};
    return IngestedCsv(options, text).message();
  };
  EXPECT_NE(message("x,y\n1,a\n2,b\n", "patient", "")
                .find("csv.group: 'patient', by which rows are split (recipe.split.group in a job "
                      "file), is "
                      "not a column; the columns are 'x', 'y'"),
            std::string::npos);
  EXPECT_NE(message("x,y\n1,a\n2,b\n", "", "y")
                .find("csv.time: 'y', by which rows are split (recipe.split.time in a job "
                      "file), is the target"),
            std::string::npos);
  EXPECT_EQ(
      message("t,x,y\n1,1,a\n,2,b\n", "", "t"),
      "data: row 2 (line 3), column 't': the time is missing, but rows are ordered by it; fill "
      "it in, or remove the row");
  EXPECT_NE(message("t,x,y\n1,1,a\n2026-01-01,2,b\n", "", "t")
                .find("'2026-01-01' is a date, but the times before are numbers"),
            std::string::npos);
  EXPECT_NE(message("t,x,y\nsoon,1,a\nlater,2,b\n", "", "t").find("'soon' is no time"),
            std::string::npos);
}

TEST(Split, AClassWithoutATrainingRowIsNamed) {
  CsvOptions options = csv_options("y");
  options.time = "t";
  const IngestedCsv d(options, "t,y\n1,a\n2,b\n3,a\n4,b\n5,new\n6,new\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const auto status = [&](double share) {
    const SplitRule rule{share, 0, "", "t"};
    return check_classes_remain(d->schema(), rule,
                                count_classes(d->schema(), d->train(), split_of(d, rule).train));
  };
  EXPECT_TRUE(status(0.2).ok());
  const Status refused = status(0.4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "CLASS_NOT_TRAINED");
  EXPECT_NE(
      refused.error().message.find("recipe.split.time: the class 'new' has no row to train on: "
                                   "all 2 of its rows are held out"),
      std::string::npos)
      << refused.error().message;
}

TEST(Split, TheSchemaKeepsItsColumns) {
  const IngestedCsv d = ingest_with_columns(table(30));
  ASSERT_TRUE(d.ok()) << d.message();
  const auto read = parse_schema(schema_text(d->schema()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->split, d->schema().split);
  EXPECT_EQ(read->split.group, "group");
  EXPECT_EQ(read->split.time, "day");
}

}  // namespace
}  // namespace trainyard
