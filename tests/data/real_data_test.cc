// Reads real files, which may contain what the small files of the unit tests lack. The tests are
// skipped if the folder of data does not exist; the digits dataset is part of the project.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/data/load/loader.h"
#include "tests/data/data_samples.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

Result<Dataset> ingested(const TemporaryFolder& folder, const IngestRequest& request) {
  const Result<DatasetSchema> schema = ingest(request, folder / "typed", local_files());
  if (!schema.ok()) return schema.error();
  return Dataset::open(folder / "typed", true);
}

class RealData : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!real_data_folder()) {
      GTEST_SKIP() << "no folder of real data: set TRAINYARD_TEST_DATA to run this test";
    }
  }
  Result<Dataset> csv(const std::string& name, const CsvOptions& options) {
    return ingested(folder_, {"csv", {{"data", *real_data_folder() / "tabular" / name}}, options});
  }
  TemporaryFolder folder_;
};

Preprocessing fit_all(const Dataset& d) {
  std::vector<int64_t> rows(static_cast<size_t>(d.train().rows));
  std::iota(rows.begin(), rows.end(), 0);
  return fit_preprocessing(d.schema(), d.train(), rows);
}

TEST_F(RealData, Mnist) {
  const auto folder = *real_data_folder() / "mnist";
  const auto d = ingested(folder_, {"idx",
                                    {{"train_images", folder / "train-images-idx3-ubyte.gz"},
                                     {"train_labels", folder / "train-labels-idx1-ubyte.gz"},
                                     {"test_images", folder / "t10k-images-idx3-ubyte.gz"},
                                     {"test_labels", folder / "t10k-labels-idx1-ubyte.gz"}},
                                    {}});
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->train().rows, 60000);
  EXPECT_EQ(d->test().rows, 10000);
  EXPECT_EQ(d->schema().image, Shape({1, 28, 28}));
  EXPECT_EQ(d->schema().target.classes.size(), 10u);
  const std::vector<int32_t> first(d->train().target_class.begin(),
                                   d->train().target_class.begin() + 5);
  EXPECT_EQ(first, (std::vector<int32_t>{5, 0, 4, 1, 9}));
  const Preprocessing p = fit_all(*d);
  EXPECT_TRUE(d->schema().warnings.empty());
  EXPECT_NEAR(p.image_mean[0], 0.1307, 1e-4);  // the constants commonly used to normalize MNIST
  EXPECT_NEAR(p.image_std[0], 0.3081, 1e-4);
}

TEST(RealDigits, AreEightByEightImages) {
  CsvOptions options = csv_options("c64");
  options.header = false;
  options.image = {1, 8, 8};
  const TemporaryFolder folder;
  const auto file = testing::source_path("examples/digits.csv.gz");
  const auto d = ingested(folder, {"csv", {{"data", file}}, options});
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->train().rows, 1797);
  EXPECT_EQ(d->schema().image_dtype, DType::kU8);
  EXPECT_EQ(d->schema().target.classes.size(), 10u);
  EXPECT_EQ(d->schema().target.classes[9], "9");
  EXPECT_EQ(d->train().image_u8[2], 5);
  for (int32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(d->train().target_class[static_cast<size_t>(i)], i);
  }
}

TEST_F(RealData, TitanicHasMissingValuesAndCategories) {
  CsvOptions options = csv_options("survived");
  options.ignore = {"alive"};  // the target as a word
  const auto d = csv("titanic.csv", options);
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->train().rows, 891);
  EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(d->schema().warnings.empty());
  for (const ColumnSchema& c : d->schema().columns) {
    if (c.name == "age") {
      EXPECT_EQ(c.missing_count, 177);
      EXPECT_EQ(c.kind, ColumnSchema::Kind::kNumeric);
    }
    if (c.name == "deck") {
      EXPECT_EQ(c.missing_count, 688);
      EXPECT_EQ(c.categories.size(), 7u);
    }
    if (c.name == "alone") {
      EXPECT_EQ(c.categories, (std::vector<std::string>{"False", "True"}));
    }
  }
}

TEST_F(RealData, TitanicWarnsOfAColumnThatRevealsTheTarget) {
  const auto d = csv("titanic.csv", csv_options("survived"));
  ASSERT_TRUE(d.ok()) << d.error().message;
  ASSERT_EQ(d->schema().warnings.size(), 1u);
  EXPECT_EQ(d->schema().warnings[0].key, "TARGET_LEAK");
  EXPECT_EQ(d->schema().warnings[0].columns, std::vector<std::string>{"alive"});
}

TEST_F(RealData, Penguins) {
  const auto d = csv("penguins.csv", csv_options("species"));
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->train().rows, 344);
  EXPECT_TRUE(d->schema().warnings.empty());
  EXPECT_EQ(d->schema().target.classes,
            (std::vector<std::string>{"Adelie", "Chinstrap", "Gentoo"}));
  EXPECT_EQ(d->schema().columns.back().name, "sex");
  EXPECT_EQ(d->schema().columns.back().missing_count, 11);
}

TEST_F(RealData, Diamonds) {
  const auto d = csv("diamonds.csv", csv_options("price"));
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->train().rows, 53940);
  EXPECT_TRUE(d->schema().warnings.empty());
  EXPECT_FALSE(d->schema().interface().classification());
  EXPECT_EQ(d->schema().numeric_columns(), 6);
  EXPECT_EQ(d->schema().interface().input, Shape({6 + 5 + 7 + 8}));
  const Preprocessing p = fit_all(*d);
  EXPECT_NEAR(p.target_mean, 3932.7997, 1e-3);
}

TEST_F(RealData, TinyShakespeareHasItsKnownCharacters) {
  IngestRequest request{
      "text", {{"data", *real_data_folder() / "tinyshakespeare" / "input.txt"}}, {}};
  request.text.test_share = 0.1;
  const auto d = ingested(folder_, request);
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->train().rows + d->test().rows, 1115394);
  EXPECT_EQ(d->schema().text.pieces.size(), 65u);
  std::string text;
  for (const int32_t t : d->train().tokens.first(13)) {
    text += d->schema().text.pieces[static_cast<size_t>(t - 1)];
  }
  EXPECT_EQ(text, "First Citizen");
}

TEST_F(RealData, AgNewsTopics) {
  CsvOptions options = csv_options("c0");
  options.header = false;
  options.text = {"c1", "c2"};
  options.max_length = 64;
  const auto d =
      ingested(folder_, {"csv", {{"data", *real_data_folder() / "ag_news" / "test.csv"}}, options});
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_EQ(d->train().rows, 7600);
  EXPECT_TRUE(d->schema().warnings.empty());
  EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{"1", "2", "3", "4"}));
  EXPECT_EQ(d->schema().text.pieces.size(), 10000u);
  EXPECT_EQ(d->schema().text.pieces.front(), "the");
  const auto known = std::ranges::count_if(d->train().tokens, [](int32_t t) { return t > 1; });
  const auto words = std::ranges::count_if(d->train().tokens, [](int32_t t) { return t > 0; });
  EXPECT_GT(static_cast<double>(known), 0.9 * static_cast<double>(words));
}

}  // namespace
}  // namespace trainyard
