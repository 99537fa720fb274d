// The tests catch wrong choices of the batch size for `batch_size: auto`.
#include "src/planning/batch_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainyard {
namespace {

/// A device on which a step takes `begins` seconds plus 1 ms per row, and needs 1000 bytes per row.
struct PretendDevice {
  double begins = 0.01;
  int64_t train_rows = 100'000;
  int64_t nodes = 10;
  int64_t bytes_max = 0;
  int64_t unit = 1;
  int64_t slow_from = 1'000'000;  // from so many rows on, the cache is too small and each row takes
                                  // twice the time
  bool knows_rates = true;
  std::vector<int64_t> tried = {};

  Result<BatchChoice> choose() {
    const auto trial = [this](int64_t rows) -> Result<BatchTrial> {
      tried.push_back(rows);
      if (rows > train_rows) {
        return field_error("FIELD_OUT_OF_RANGE", "recipe.batch_size", "is larger than the rows");
      }
      const auto n = static_cast<double>(rows);
      Result<double> rate = n / (begins + n * (rows >= slow_from ? 0.002 : 0.001));
      if (!knows_rates) rate = make_error(ErrorCode::kNotFound, "RATE_UNKNOWN", "no rates yet");
      return BatchTrial{rows * 1000, train_rows, nodes, std::move(rate)};
    };
    return choose_batch_size({unit, bytes_max, trial});
  }
  int64_t rows() {
    const Result<BatchChoice> choice = choose();
    return choice.ok() ? choice->rows : -1;
  }
};

TEST(BatchChoice, TheSmallestWithinFivePercentOfTheBest) {
  PretendDevice device;
  const BatchChoice choice = device.choose().value();
  // With n rows the rate is 1000 n / (n + 10) rows/s; the best is that of 65536 rows, 999.85.
  EXPECT_EQ(choice.rows, 256);
  EXPECT_EQ(choice.message,
            "batch_size auto: 256 rows, forecast 962 rows/s, within 5 % of the best of those that "
            "fit (65536 rows: 1,000). The learning rate is not scaled with it");
  EXPECT_EQ(device.tried.size(), 17u) << "each power of two once";
  EXPECT_EQ(PretendDevice{.begins = 0.0001}.rows(), 2);
}

TEST(BatchChoice, MoreRowsThanTheBestAreNotBetter) {
  PretendDevice device{.begins = 1, .slow_from = 4096};
  const BatchChoice choice = device.choose().value();
  EXPECT_EQ(choice.rows, 2048);
  EXPECT_NE(choice.message.find("forecast 672 rows/s, the best of those that fit"),
            std::string::npos)
      << choice.message;
}

TEST(BatchChoice, IsLimitedByMemoryAndByTheNumberOfRows) {
  PretendDevice memory{.begins = 1, .bytes_max = 100'000};
  EXPECT_EQ(memory.rows(), 64);
  EXPECT_EQ(memory.tried.back(), 128) << "what needs more is not planned";
  PretendDevice rows{.begins = 1, .train_rows = 120};
  EXPECT_EQ(rows.rows(), 64);
  EXPECT_EQ(rows.tried.back(), 64);
  const BatchChoice least = PretendDevice{.bytes_max = 10}.choose().value();
  EXPECT_EQ(least.rows, 1) << "the caller refuses it, or makes it fit";
}

TEST(BatchChoice, IsAMultipleOfTheUnit) {
  PretendDevice device{.unit = 12};
  EXPECT_EQ(device.rows(), 192);
  EXPECT_TRUE(std::ranges::all_of(device.tried, [](int64_t rows) { return rows % 12 == 0; }));
}

TEST(BatchChoice, WithoutRatesItIsTheDefaultOrTheLargestThatFits) {
  const BatchChoice choice = PretendDevice{.knows_rates = false}.choose().value();
  EXPECT_EQ(choice.rows, 64);
  EXPECT_EQ(choice.message,
            "batch_size auto: 64 rows, the default: no rates yet. The learning rate is not scaled "
            "with it");
  EXPECT_EQ((PretendDevice{.bytes_max = 20'000, .knows_rates = false}.rows()), 16);
  EXPECT_EQ((PretendDevice{.train_rows = 50, .knows_rates = false}.rows()), 32);
  EXPECT_EQ((PretendDevice{.unit = 3, .knows_rates = false}.rows()), 48);
}

TEST(BatchChoice, LargeNetworksArePlannedOnlyAFewTimes) {
  PretendDevice device{.begins = 1, .nodes = 30'000};
  const int64_t chosen = device.rows();
  EXPECT_LE(device.tried.size(), 3u);
  EXPECT_GE(chosen, 1024);
}

TEST(BatchChoice, AnErrorOfAllSizesIsReportedOnce) {
  const auto mixes = [](bool of_the_model) {
    return choose_batch_size({1, 0, [=](int64_t rows) -> Result<BatchTrial> {
                                if (rows == 1) {
                                  return field_error("FIELD_OUT_OF_RANGE", "recipe.batch_size",
                                                     "is 1, expected at least 2");
                                }
                                if (of_the_model) {
                                  return field_error("FIELD_REQUIRED", "model", "has no layers");
                                }
                                return BatchTrial{rows, 2, 1, 1.0};
                              }});
  };
  EXPECT_EQ(mixes(false)->rows, 2);
  EXPECT_NE(mixes(true).error().message.find("no layers"), std::string::npos);
  EXPECT_NE(PretendDevice{.train_rows = 0}.choose().error().message.find("larger than the rows"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard
