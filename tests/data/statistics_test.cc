// The tests fail if counts include test rows or missing values, a schema loses its statistics when
// it is written and read, or a dataset of an older version, which has no statistics, cannot be
// read.
#include "src/data/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

constexpr const char* kStatisticsTable =
    "size,colour,empty,kind\n"
    "1,red,NA,a\n"
    "2,blue,NA,b\n"
    "NA,red,,a\n"
    "6,,,a\n";

TEST(Statistics, OfTables) {
  const IngestedCsv d(csv_options("kind"), kStatisticsTable,
                      "size,colour,empty,kind\n99,blue,3,b\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetStatistics s = d->schema().statistics.value();  // read from the dataset's folder
  ASSERT_EQ(s.numeric.size(), 2u);
  EXPECT_EQ(s.numeric[0]->min, 1);
  EXPECT_EQ(s.numeric[0]->max, 6);
  EXPECT_DOUBLE_EQ(s.numeric[0]->mean, 3);
  EXPECT_DOUBLE_EQ(s.numeric[0]->std, std::sqrt((4.0 + 1.0 + 9.0) / 3));
  EXPECT_FALSE(s.numeric[1].has_value()) << "all missing";
  ASSERT_EQ(s.categories.size(), 1u);
  EXPECT_EQ(s.categories[0], (std::vector<int64_t>{1, 2}));  // the counts of blue and red
  EXPECT_EQ(s.classes, (std::vector<int64_t>{3, 1}));
  EXPECT_FALSE(s.target.has_value());
  EXPECT_EQ(d->schema().columns[1].missing_count, 1);
  EXPECT_EQ(d->schema().interface().class_counts, s.classes);
}

TEST(Statistics, OfANumericTarget) {
  CsvOptions options = csv_options("y");
  options.target_kind = "numeric";
  const IngestedCsv d(options, "x,y\n1,10\n2,-4\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().statistics->target, (NumberStatistics{-4, 10, 3, 7}));
  EXPECT_TRUE(d->schema().statistics->classes.empty());
}

TEST(Statistics, OfImagesByChannelAndOfClassesWithoutRows) {
  CsvOptions options = csv_options("y");
  options.image = {2, 1, 2};
  const IngestedCsv d(options, "a,b,c,d,y\n0,255,10,10,0\n51,102,10,10,1\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<NumberStatistics>& channels = d->schema().statistics->channels;
  ASSERT_EQ(channels.size(), 2u);
  EXPECT_EQ(channels[0].max, 255);
  EXPECT_DOUBLE_EQ(channels[0].mean, 102);
  EXPECT_DOUBLE_EQ(channels[0].std, std::sqrt((102. * 102 + 153. * 153 + 51. * 51) / 4));
  EXPECT_EQ(channels[1], (NumberStatistics{10, 10, 10, 0}));
  const IngestedIdx idx(idx_file(0x0D, {3, 1, 2}, idx_floats({0.5f, 1, 2, 3, 4, -1})),
                        idx_file(0x08, {3}, std::string("\0\2\2", 3)));
  ASSERT_TRUE(idx.ok()) << idx.message();
  EXPECT_EQ(idx->schema().statistics->classes, (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(idx->schema().statistics->channels[0].min, -1);
}

TEST(Statistics, OfText) {
  CsvOptions options = csv_options("y");
  options.text = {"t"};
  options.max_length = 4;
  const IngestedCsv d(options, "t,y\none two,0\none two three four five six,1\n,0\n");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().statistics->tokens_per_row->min, 0);
  EXPECT_EQ(d->schema().statistics->tokens_per_row->max, 4) << "cut";
  EXPECT_DOUBLE_EQ(d->schema().statistics->tokens_per_row->mean, 2);
  const IngestedText stream("to be or not to be");
  ASSERT_TRUE(stream.ok()) << stream.message();
  EXPECT_EQ(stream->schema().statistics, DatasetStatistics{});
}

TEST(Statistics, AreOptionalAndThoseOfTheSchema) {
  const IngestedCsv d(csv_options("kind"), kStatisticsTable);
  ASSERT_TRUE(d.ok()) << d.message();
  const auto json = d->schema().to_json();
  EXPECT_EQ(DatasetSchema::from_json(json)->statistics, d->schema().statistics);
  auto old = json;
  old.erase("statistics");
  const auto read = DatasetSchema::from_json(old);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_FALSE(read->statistics.has_value());
  EXPECT_TRUE(read->interface().class_counts.empty());
  const auto broken = [&](const char* key, nlohmann::json value) {
    auto other = json;
    other["statistics"][key] = std::move(value);
    const auto refused = DatasetSchema::from_json(other);
    EXPECT_FALSE(refused.ok()) << key;
    if (!refused.ok()) {
      EXPECT_EQ(refused.error().reason, "DATASET_INVALID");
    }
  };
  broken("classes", {1, 2, 3});
  broken("classes", {4, 1});  // more than the number of rows
  broken("classes", {-1, 1});
  broken("classes", {1.5, 1});
  broken("categories", nlohmann::json::array());
  broken("categories", {{1, 2}, {1}});
  broken("numeric", nlohmann::json::array());
  broken("numeric", 7);
  broken("channels", nlohmann::json::array({nullptr}));
  broken("other", 1);
}

}  // namespace
}  // namespace trainyard
