// The tests fail if pixels or class shares differ from torchvision's for the same draw
// (tests/golden/make_mix_golden.py), shares do not follow the beta distribution, or batches depend
// on threads or on where a run was resumed.
#include "src/data/load/mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/philox.h"
#include "src/data/load/loader.h"
#include "tests/data/data_samples.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

TEST(Mixer, MatchesTorchvisionsPixelsAndShares) {
  std::ifstream file(testing::source_path("tests/golden/mix.json"));
  const Json golden = Json::parse(file);
  const auto dims = golden["image"].get<std::vector<int64_t>>();
  const int64_t classes = golden["classes"], size = dims[0] * dims[1] * dims[2];
  const Mixer mixer({Mixup{}, Cutmix{}}, Shape(dims), classes);
  for (const Json& expected : golden["draws"]) {
    SCOPED_TRACE(expected["share"].dump() + expected["centre"].dump());
    const auto result = expected["images"].get<std::vector<float>>();
    const int64_t rows = std::ssize(result) / size;
    // These are the images and labels of batch(100) in tests/golden/make_mix_golden.py.
    std::vector<float> images;
    std::vector<int32_t> labels;
    for (int64_t n = 0; n < rows; ++n) {
      labels.push_back(static_cast<int32_t>(
          math::philox_u32(golden["seed"], stream_of("mix/label"), 100, static_cast<uint64_t>(n)) %
          static_cast<uint32_t>(classes)));
      for (int64_t i = 0; i < size; ++i) {
        const auto x = math::uniform01<float>(math::philox_u32(
            golden["seed"], stream_of("mix/x"), 100, static_cast<uint64_t>(n * size + i)));
        images.push_back(i % dims[2] == labels.back() ? x + 1.5f : x);
      }
    }
    const std::vector<int32_t> own = labels;
    MixDraw draw{expected["cuts"], expected["share"]};
    if (draw.cuts) {
      draw.box =
          cut_box(draw.share, expected["centre"][0], expected["centre"][1], dims[1], dims[2]);
    }
    const double share = mixer.mix_images(draw, images);
    for (size_t i = 0; i < result.size(); ++i) EXPECT_NEAR(images[i], result[i], 2e-7) << i;
    const std::vector<float> shares = mixer.mix_labels(share, labels);
    const auto wanted = expected["shares"].get<std::vector<float>>();
    ASSERT_EQ(shares.size(), wanted.size());
    for (size_t i = 0; i < shares.size(); ++i) EXPECT_NEAR(shares[i], wanted[i], 2e-7) << i;
    for (size_t n = 0; n < own.size(); ++n) {
      EXPECT_EQ(labels[n], share < 0.5 ? own[(n + own.size() - 1) % own.size()] : own[n]);
    }
  }
}

/// Returns 20000 draws in ascending order.
std::vector<double> draws_of(double alpha) {
  std::vector<double> draws;
  for (uint64_t step = 0; step < 20000; ++step) {
    uint64_t next = 0;
    draws.push_back(draw_beta(alpha, 7, stream_of("test"), step, next));
  }
  std::ranges::sort(draws);
  return draws;
}

// Uses the Kolmogorov-Smirnov distance from distribution functions with a closed form: for 20000
// draws it is below 0.0138 in 999 of 1000 cases.
TEST(Mixer, SharesAreDrawnFromTheBetaDistribution) {
  const auto distance = [](double alpha, double (*distribution)(double)) {
    const std::vector<double> draws = draws_of(alpha);
    double largest = 0;
    for (size_t i = 0; i < draws.size(); ++i) {
      const double below = static_cast<double>(i) / static_cast<double>(draws.size());
      largest = std::max(largest, std::abs(distribution(draws[i]) - below));
    }
    return largest;
  };
  EXPECT_LT(distance(1, [](double x) { return x; }), 0.0138);
  EXPECT_LT(distance(0.5, [](double x) { return 2 / M_PI * std::asin(std::sqrt(x)); }), 0.0138);
  EXPECT_LT(distance(2, [](double x) { return x * x * (3 - 2 * x); }), 0.0138);
  EXPECT_LT(distance(3, [](double x) { return x * x * x * (10 + x * (6 * x - 15)); }), 0.0138);
  for (const double alpha : {1e-4, 0.01, 0.2, 8.0, 100.0}) {
    const std::vector<double> draws = draws_of(alpha);
    double mean = 0, square = 0;
    for (const double x : draws) {
      EXPECT_TRUE(x >= 0 && x <= 1);
      mean += x / 20000;
      square += (x - 0.5) * (x - 0.5) / 20000;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(variance / 20000)) << alpha;
    EXPECT_NEAR(square, variance, 0.05 * variance) << alpha;
  }
}

TEST(Mixer, DependsOnSeedAndStepAndUsesEachMixing) {
  const Mixer mixer({Mixup{1}, Cutmix{1}}, {1, 6, 4}, 3);
  int cuts = 0;
  for (int64_t step = 0; step < 2000; ++step) {
    const MixDraw draw = mixer.draw(3, step), again = mixer.draw(3, step);
    EXPECT_EQ(draw.share, again.share);
    EXPECT_NE(draw.share, mixer.draw(4, step).share);
    EXPECT_NE(draw.share, mixer.draw(3, step + 1).share);
    cuts += draw.cuts ? 1 : 0;
    EXPECT_TRUE(draw.box.top >= 0 && draw.box.bottom <= 6 && draw.box.right <= 4);
  }
  EXPECT_NEAR(cuts, 1000, 90);  // four standard deviations
  EXPECT_FALSE(Mixer({Mixup{}}, {1, 6, 4}, 3).draw(0, 0).cuts);
}

TEST(Mixer, BatchesAreTheSameForAnyThreadsAndAnyStart) {
  std::string pixels, labels;
  for (int i = 0; i < 30; ++i) {
    for (int k = 0; k < 6; ++k) pixels += static_cast<char>(i * 7 + k * 3);
    labels += static_cast<char>(i % 4);
  }
  const IngestedIdx data(idx_file(0x08, {30, 2, 3}, pixels), idx_file(0x08, {30}, labels));
  ASSERT_TRUE(data.ok()) << data.message();
  std::vector<int64_t> rows(30);
  std::iota(rows.begin(), rows.end(), 0);
  const Preprocessing p = fit_preprocessing(data->schema(), data->train(), rows);
  Loader::Options options{.batch_size = 7, .seed = 9};
  Loader plain(data->schema(), p, data->train(), rows, options);
  EXPECT_TRUE(plain.next().target_shares.empty());
  options.mixer = Mixer({Cutmix{}, Mixup{}}, {1, 2, 3}, 4);
  const auto steps = [&](int64_t first, int threads) {
    options.first_step = first;
    options.threads = threads;
    Loader loader(data->schema(), p, data->train(), rows, options);
    std::vector<std::pair<std::vector<float>, std::vector<float>>> batches;
    for (int64_t s = first; s < 24; ++s) {
      const Batch& batch = loader.next();
      EXPECT_EQ(batch.target_bytes().size(), 7u * 4 * sizeof(float));
      for (size_t n = 0; n < 7; ++n) {
        const float* t = &batch.target_shares[n * 4];
        EXPECT_NEAR(std::accumulate(t, t + 4, 0.0f), 1, 1e-6);
        EXPECT_GE(t[batch.target_class[n]], 0.5f - 1e-6f) << "the label is the larger share";
      }
      batches.emplace_back(batch.input, batch.target_shares);
    }
    return batches;
  };
  const auto whole = steps(0, 1);
  EXPECT_EQ(steps(0, 5), whole);
  const auto rest = steps(11, 2);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 11));
}

}  // namespace
}  // namespace trainyard
