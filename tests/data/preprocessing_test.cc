// The tests fail if statistics include rows other than training rows, a transform differs in
// prediction, or numbers change when they are written to JSON and read back.
#include "src/data/preprocessing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/data/load/loader.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

constexpr const char* kTable =
    "size,colour,constant,price\n"
    "1,red,0.1,10.5\n"
    "2,blue,0.1,20\n"
    "NA,green,0.1,30\n"
    "6,?,0.1,40\n";

std::vector<float> transformed(const DatasetSchema& schema, const Preprocessing& p,
                               const Partition& partition, int64_t row) {
  std::vector<float> out(static_cast<size_t>(schema.interface().input.elements()), NAN);
  transform_row(schema, p, partition, row, out.data());
  return out;
}

TEST(Preprocessing, StandardizesAndEncodes) {
  const IngestedCsv d(csv_options("price"), kTable);
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<int64_t> rows = {0, 1, 2, 3};
  const Preprocessing p = fit_preprocessing(d->schema(), d->train(), rows);
  const double std = std::sqrt((4.0 + 1.0 + 9.0) / 3);  // deviation of 1, 2 and 6
  EXPECT_DOUBLE_EQ(p.numeric_mean[0], 3);
  EXPECT_DOUBLE_EQ(p.numeric_std[0], std);
  EXPECT_EQ(p.numeric_std[1], 1);  // the column is constant
  EXPECT_DOUBLE_EQ(p.target_mean, 25.125);
  using Row = std::vector<float>;
  const auto f = [&](double x) { return static_cast<float>((x - 3) / std); };
  EXPECT_EQ(transformed(d->schema(), p, d->train(), 0), (Row{f(1), 0, 0, 0, 1}));
  EXPECT_EQ(transformed(d->schema(), p, d->train(), 2), (Row{0, 0, 0, 1, 0}));
  EXPECT_EQ(transformed(d->schema(), p, d->train(), 3), (Row{f(6), 0, 0, 0, 0}));
  const RowTransform transform(d->schema(), p);
  EXPECT_NEAR(transform.restore_target(transform.standardize_target(30)), 30, 1e-5);
}

TEST(Preprocessing, CategoriesAsCodes) {
  const IngestedCsv d(csv_options("price"), kTable, "size,colour,constant,price\n1,pink,0.1,1\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<int64_t> rows = {0, 1, 2, 3};
  const Preprocessing p =
      fit_preprocessing(d->schema(), d->train(), rows, {.category_codes = true});
  const RowTransform transform(d->schema(), p);
  ASSERT_EQ(transform.input_size(), 3);
  const auto code = [&](const Partition& partition, int64_t row) {
    std::vector<float> out(3, NAN);
    transform.apply(partition, row, out.data());
    return out[2];
  };
  EXPECT_EQ(code(d->train(), 0), 3);  // the order of codes is blue, green, red
  EXPECT_EQ(code(d->train(), 1), 1);
  EXPECT_EQ(code(d->train(), 2), 2);
  EXPECT_EQ(code(d->train(), 3), 0) << "missing";
  EXPECT_EQ(code(d->test(), 0), 0) << "unseen";
  EXPECT_EQ(Preprocessing::from_json(p.to_json()).value(), p);
  Preprocessing one_hot = p;
  one_hot.category_codes = false;
  EXPECT_EQ(one_hot.to_json().find("category_codes"), std::string::npos) << "as it always was";
  EXPECT_EQ(fit_preprocessing(d->schema(), d->train(), rows), one_hot);
}

TEST(Preprocessing, ImagesByChannelAndTheSumsAgreeWithThePixels) {
  CsvOptions options = csv_options("y");
  options.image = {2, 1, 2};
  const IngestedCsv d(options, "a,b,c,d,y\n0,255,10,10,0\n51,102,10,10,1\n9,9,9,9,0\n");
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<int64_t> rows = {0, 1};
  const Preprocessing p = fit_preprocessing(d->schema(), d->train(), rows);
  EXPECT_NEAR(p.image_mean[0], 102 / 255.0, 1e-15);  // the mean of 0, 255, 51, 102
  EXPECT_NEAR(p.image_std[0], std::sqrt((102. * 102 + 153. * 153 + 51. * 51) / 4) / 255, 1e-15);
  EXPECT_NEAR(p.image_mean[1], 10 / 255.0, 1e-15);
  EXPECT_EQ(p.image_std[1], 1);
  const auto row = transformed(d->schema(), p, d->train(), 1);
  EXPECT_FLOAT_EQ(row[0], static_cast<float>((51 / 255. - p.image_mean[0]) / p.image_std[0]));
  EXPECT_FLOAT_EQ(row[2], 0);
  Partition without_sums = d->train();
  without_sums.image_sums = {};
  EXPECT_EQ(fit_preprocessing(d->schema(), without_sums, rows), p);  // equal to the bit
}

// The values of torchvision's Normalize with ImageNet's constants, for 0, 128 and 255.
TEST(Preprocessing, FixedScalesIgnoreTheTrainingRows) {
  CsvOptions options = csv_options("y");
  options.image = {3, 1, 3};
  const IngestedCsv d(options, "a,b,c,d,e,f,g,h,i,y\n0,128,255,0,128,255,0,128,255,0\n" +
                                   std::string("9,9,9,9,9,9,9,9,9,1\n"));
  ASSERT_TRUE(d.ok()) << d.message();
  const std::vector<int64_t> rows = {1};
  const auto row = [&](std::string_view scale) {
    const Preprocessing p =
        fit_preprocessing(d->schema(), d->train(), rows, {.pixels = find_pixel_scale(scale)});
    EXPECT_EQ(Preprocessing::from_json(p.to_json()).value(), p);
    return transformed(d->schema(), p, d->train(), 0);
  };
  const std::vector<float> imagenet = {-2.1179039f, 0.0740646f, 2.2489083f,
                                       -2.0357144f, 0.2051820f, 2.4285717f,
                                       -1.8044444f, 0.4264923f, 2.6399999f};
  const std::vector<float> found = row("imagenet");
  for (size_t i = 0; i < imagenet.size(); ++i) EXPECT_NEAR(found[i], imagenet[i], 1e-6) << i;
  EXPECT_EQ(row("minus_one_to_one")[2], 1);
  EXPECT_EQ(row("minus_one_to_one")[3], -1);
  EXPECT_FLOAT_EQ(row("zero_to_one")[1], 128 / 255.0f);
  EXPECT_EQ(find_pixel_scale("dataset"), nullptr);
  EXPECT_EQ(pixel_scale_names().front(), "dataset");
}

// A validation split must never leak: all rows other than training rows get infinite values.
TEST(Preprocessing, FitNeverReadsOtherRows) {
  std::string text = "a,b,price\n";
  for (int i = 0; i < 50; ++i) {
    text +=
        std::to_string(i * i % 17) + "," + std::to_string(i) + "," + std::to_string(i * 1.5) + "\n";
  }
  const IngestedCsv d(csv_options("price"), text);
  ASSERT_TRUE(d.ok()) << d.message();
  const Split split = split_rows(50, 0.3, 7);
  ASSERT_EQ(split.validation.size(), 15u);
  const Preprocessing clean = fit_preprocessing(d->schema(), d->train(), split.train);

  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> numeric(d->train().numeric.begin(), d->train().numeric.end());
  std::vector<float> target(d->train().target_numeric.begin(), d->train().target_numeric.end());
  for (const int64_t row : split.validation) {
    numeric[static_cast<size_t>(row) * 2] = kInf;  // NaN would be treated as a missing value
    numeric[static_cast<size_t>(row) * 2 + 1] = kInf;
    target[static_cast<size_t>(row)] = kInf;
  }
  Partition poisoned = d->train();
  poisoned.numeric = numeric;
  poisoned.target_numeric = target;
  EXPECT_EQ(fit_preprocessing(d->schema(), poisoned, split.train), clean);
}

TEST(Preprocessing, JsonKeepsEveryBit) {
  Preprocessing p;
  for (const double x : {0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, 123456789.123456789,
                         -0.0, 2.2250738585072014e-308}) {
    p.numeric_mean.push_back(x);
    p.numeric_std.push_back(std::abs(x) + 5e-324);
  }
  p.image_mean = {0.13066047627384287};
  p.image_std = {0.30810780717887876};
  p.image_scale = 1.0 / 255;
  p.target_mean = -1e-17;
  const auto again = Preprocessing::from_json(p.to_json());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, p);
  EXPECT_TRUE(std::signbit(again->numeric_mean[6]));

  for (const char* bad : {"", "{}", "[1]", R"({"numeric_mean":[null]})"}) {
    EXPECT_FALSE(Preprocessing::from_json(bad).ok()) << bad;
  }
  Preprocessing zero = p;
  zero.image_std = {0};
  EXPECT_FALSE(Preprocessing::from_json(zero.to_json()).ok());
  Preprocessing uneven = p;
  uneven.numeric_std.pop_back();
  EXPECT_FALSE(Preprocessing::from_json(uneven.to_json()).ok());
}

TEST(Preprocessing, OfAnotherSchemaIsAFault) {
  const IngestedCsv d(csv_options("price"), kTable);
  const Preprocessing empty;
  EXPECT_FALSE(empty.fits(d->schema()));
  EXPECT_THROW(RowTransform(d->schema(), empty), InvariantError);
}

TEST(Split, IsAPartition) {
  for (const int64_t rows : {1, 2, 3, 10, 1000, 1797}) {
    for (const double fraction : {0.0, 0.001, 0.1, 0.5, 0.9}) {
      for (const uint64_t seed : {0, 1, 99}) {
        const Split split = split_rows(rows, fraction, seed);
        EXPECT_EQ(std::ssize(split.validation), validation_row_count(rows, fraction));
        EXPECT_TRUE(std::ranges::is_sorted(split.train));
        EXPECT_TRUE(std::ranges::is_sorted(split.validation));
        std::vector<int64_t> all = split.train;
        all.insert(all.end(), split.validation.begin(), split.validation.end());
        std::ranges::sort(all);
        std::vector<int64_t> expected(static_cast<size_t>(rows));
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(all, expected);
      }
    }
  }
  EXPECT_EQ(validation_row_count(1000, 0.1), 100);
  EXPECT_EQ(validation_row_count(4, 0.1), 0);
  EXPECT_NE(split_rows(100, 0.5, 1).train, split_rows(100, 0.5, 2).train);
}

}  // namespace
}  // namespace trainyard
