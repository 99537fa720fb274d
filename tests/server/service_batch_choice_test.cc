// Catches: a batch_size that `auto` should not have become.
#include "server/planning/batch_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainyard::server {
namespace {

/// A device on which a step takes `begins` seconds and each row 1 ms, with 1000 bytes a row.
struct PretendDevice {
  double begins = 0.01;
  int64_t train_rows = 100'000;
  int64_t nodes = 10;
  int64_t bytes_max = 0;
  int64_t unit = 1;
  int64_t slow_from = 1'000'000;  // rows that no cache holds: each takes twice the time
  bool knows_rates = true;
  std::vector<int64_t> tried = {};

  Result<v1::FitChoice> choose() {
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
    return server::choose_batch_size({unit, bytes_max, trial});
  }
  int64_t rows() {
    const Result<v1::FitChoice> choice = choose();
    return choice.ok() ? choice->batch_size() : -1;
  }
};

TEST(BatchChoice, TheSmallestWithinFivePercentOfTheBest) {
  PretendDevice device;
  const v1::FitChoice choice = device.choose().value();
  // With n rows the rate is 1000 n / (n + 10); the best is 65536 rows', 999.85.
  EXPECT_EQ(choice.batch_size(), 256);
  EXPECT_EQ(choice.message(),
            "batch_size auto: 256 rows, forecast 962 rows/s, within 5 % of the best of those that "
            "fit (65536 rows: 1,000). The learning rate is not scaled with it");
  EXPECT_EQ(device.tried.size(), 17u) << "each power of two once";
  EXPECT_EQ(PretendDevice{.begins = 0.0001}.rows(), 2);
}

TEST(BatchChoice, MoreRowsThanTheBestAreNotBetter) {
  PretendDevice device{.begins = 1, .slow_from = 4096};
  const v1::FitChoice choice = device.choose().value();
  EXPECT_EQ(choice.batch_size(), 2048);
  EXPECT_NE(choice.message().find("forecast 672 rows/s, the best of those that fit"),
            std::string::npos)
      << choice.message();
}

TEST(BatchChoice, NoMoreThanFitsAndThanThereAre) {
  PretendDevice memory{.begins = 1, .bytes_max = 100'000};
  EXPECT_EQ(memory.rows(), 64);
  EXPECT_EQ(memory.tried.back(), 128) << "what needs more is not planned";
  PretendDevice rows{.begins = 1, .train_rows = 120};
  EXPECT_EQ(rows.rows(), 64);
  EXPECT_EQ(rows.tried.back(), 64);
  const v1::FitChoice least = PretendDevice{.bytes_max = 10}.choose().value();
  EXPECT_EQ(least.batch_size(), 1) << "the caller refuses it, or makes it fit";
}

TEST(BatchChoice, MicroBatchesAndGpusDivideIt) {
  v1::JobSpec spec;
  EXPECT_FALSE(batch_size_is_open(spec));
  spec.mutable_recipe()->set_batch_size(0);
  EXPECT_TRUE(batch_size_is_open(spec));
  EXPECT_EQ(batch_unit(spec), 1);
  spec.mutable_recipe()->set_accumulate_steps(4);
  spec.mutable_resources()->set_gpus(3);
  EXPECT_EQ(batch_unit(spec), 12);
  PretendDevice device{.unit = 12};
  EXPECT_EQ(device.rows(), 192);
  EXPECT_TRUE(std::ranges::all_of(device.tried, [](int64_t rows) { return rows % 12 == 0; }));
  spec.mutable_recipe()->set_accumulate_steps(-1);
  spec.mutable_resources()->set_gpus(1 << 30);
  EXPECT_EQ(batch_unit(spec), 1) << "their own checks refuse them";
}

TEST(BatchChoice, AForkKeepsItsParentsNumber) {
  v1::JobSpec parent, fork;
  parent.mutable_recipe()->set_batch_size(16);
  fork.mutable_recipe()->set_batch_size(0);
  keep_batch_size(parent, fork);
  EXPECT_EQ(fork.recipe().batch_size(), 16);
  fork.mutable_recipe()->set_batch_size(8);
  keep_batch_size(parent, fork);
  EXPECT_EQ(fork.recipe().batch_size(), 8) << "what it names is its own";
  fork.mutable_recipe()->set_batch_size(0);
  parent.mutable_recipe()->clear_batch_size();
  keep_batch_size(parent, fork);
  EXPECT_FALSE(fork.recipe().has_batch_size()) << "the default";
}

TEST(BatchChoice, WithoutRatesItIsTheDefaultOrWhatFitsOfIt) {
  const v1::FitChoice choice = PretendDevice{.knows_rates = false}.choose().value();
  EXPECT_EQ(choice.batch_size(), 64);
  EXPECT_EQ(choice.message(),
            "batch_size auto: 64 rows, the default: no rates yet. The learning rate is not scaled "
            "with it");
  EXPECT_EQ((PretendDevice{.bytes_max = 20'000, .knows_rates = false}.rows()), 16);
  EXPECT_EQ((PretendDevice{.train_rows = 50, .knows_rates = false}.rows()), 32);
  EXPECT_EQ((PretendDevice{.unit = 3, .knows_rates = false}.rows()), 48);
}

TEST(BatchChoice, LargeNetworksArePlannedAFewTimes) {
  PretendDevice device{.begins = 1, .nodes = 30'000};
  const int64_t chosen = device.rows();
  EXPECT_LE(device.tried.size(), 3u);
  EXPECT_GE(chosen, 1024);
}

TEST(BatchChoice, WhatAnySizeHasIsSaidOfOne) {
  const auto mixes = [](bool of_the_model) {
    return server::choose_batch_size({1, 0, [=](int64_t rows) -> Result<BatchTrial> {
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
  EXPECT_EQ(mixes(false)->batch_size(), 2);
  EXPECT_NE(mixes(true).error().message.find("no layers"), std::string::npos);
  EXPECT_NE(PretendDevice{.train_rows = 0}.choose().error().message.find("larger than the rows"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard::server
