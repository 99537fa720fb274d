// Tests of the candidates of a sampled softmax: which classes are drawn, how often, and equally on
// every backend; and that with all classes as candidates the loss is that of the full softmax.
#include "kernels/sampled_xent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels {
namespace {

struct Drawn {
  std::vector<int32_t> classes, position;
  std::vector<float> log_expected;
  bool operator==(const Drawn&) const = default;
};

SampleClassesParams params(int64_t classes, int64_t samples, int64_t rows, bool log_uniform) {
  SampleClassesParams p;
  p.rows = p.counted = rows;
  p.samples = samples;
  p.seed = 7;
  p.stream = 11;
  p.candidates = math::candidates_of(classes, log_uniform);
  return p;
}

template <typename Kernel>
Drawn draw(const SampleClassesParams& p, const std::vector<int32_t>& labels, int64_t step,
           const Kernel& kernel) {
  Drawn d;
  d.classes.resize(static_cast<size_t>(p.columns()), -7);
  d.position.resize(static_cast<size_t>(p.rows), -7);
  d.log_expected.resize(static_cast<size_t>(p.columns()), -7);
  kernel(SampleClassesOperands<float>{labels.data(), labels.data(), &step, d.classes.data(),
                                      d.position.data(), d.log_expected.data()});
  return d;
}
Drawn reference_draw(const SampleClassesParams& p, const std::vector<int32_t>& labels,
                     int64_t step) {
  return draw(p, labels, step, [&](const SampleClassesOperands<float>& o) {
    reference::sample_classes<float>(p, o);
  });
}
Drawn cpu_draw(const SampleClassesParams& p, const std::vector<int32_t>& labels, int64_t step,
               int threads) {
  cpu::Team team(threads);
  std::vector<std::byte> memory(static_cast<size_t>(cpu::sample_classes_workspace_bytes(p)) + 64);
  auto* const workspace =
      reinterpret_cast<void*>(round_up(reinterpret_cast<int64_t>(memory.data()), kHostAlignment));
  return draw(p, labels, step, [&](const SampleClassesOperands<float>& o) {
    cpu::sample_classes(p, o, {team, workspace});
  });
}

// If exp differs between CPU and GPU, a draw may select the neighbouring class.
TEST(Candidates, PortableExpIsWithinTwoUlpOfTheLibrarys) {
  double worst = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double y = 40.0 * i / 200000, exact = std::exp(y);
    worst = std::max(worst, std::fabs(math::portable_exp(y) - exact) / (exact * 0x1p-52));
  }
  EXPECT_LE(worst, 2);
  EXPECT_EQ(math::portable_exp(0), 1);
}

TEST(Candidates, AreWithinTheClassesAtTheEnds) {
  for (const bool log_uniform : {true, false}) {
    for (const int64_t classes : {2, 3, 1000003, 1 << 22}) {
      const math::Candidates c = math::candidates_of(classes, log_uniform);
      double total = 0;
      for (int64_t k = 0; k < std::min<int64_t>(classes, 1000); ++k) total += c.probability(k);
      EXPECT_LE(total, 1 + 1e-12);
      if (classes <= 1000) {
        EXPECT_NEAR(total, 1, 1e-12);
      }
      for (int64_t t = 0; t < 2000; ++t) {
        const int64_t k = c.draw(3, 5, 1, t);
        ASSERT_GE(k, 0);
        ASSERT_LT(k, classes);
      }
    }
  }
}

// The share of each class in many draws equals its probability within four standard deviations.
TEST(Candidates, FollowTheirDistribution) {
  constexpr int64_t kClasses = 50, kDraws = 400000;
  for (const bool log_uniform : {true, false}) {
    const math::Candidates c = math::candidates_of(kClasses, log_uniform);
    std::vector<int64_t> counts(kClasses);
    for (int64_t t = 0; t < kDraws; ++t) ++counts[static_cast<size_t>(c.draw(1, 2, 3, t))];
    for (int64_t k = 0; k < kClasses; ++k) {
      const double p = c.probability(k);
      EXPECT_NEAR(static_cast<double>(counts[static_cast<size_t>(k)]) / kDraws, p,
                  4 * std::sqrt(p * (1 - p) / kDraws))
          << k;
    }
  }
}

TEST(SampleClasses, DrawsEachClassOnceAndIncludesEveryLabel) {
  for (const bool log_uniform : {true, false}) {
    for (const auto& [classes, samples] : std::vector<std::pair<int64_t, int64_t>>{
             {2, 1}, {10, 5}, {1000, 500}, {1000, 20}, {1000000, 3000}}) {
      SCOPED_TRACE(classes);
      const SampleClassesParams p = params(classes, samples, 8, log_uniform);
      std::vector<int32_t> labels;
      for (int64_t n = 0; n < 8; ++n) {
        labels.push_back(static_cast<int32_t>(n * n * 7919 % classes));
      }
      labels[7] = labels[0];
      const Drawn d = reference_draw(p, labels, 4);
      std::set<int32_t> seen;
      int64_t left_out = 0;
      for (size_t j = 0; j < d.classes.size(); ++j) {
        const int32_t k = d.classes[j];
        if (k < 0) {
          ++left_out;
          EXPECT_EQ(d.log_expected[j], 0);
          continue;
        }
        EXPECT_EQ(left_out, 0) << "nothing stands behind the first that is left out";
        EXPECT_LT(k, classes);
        EXPECT_TRUE(seen.insert(k).second) << k;
        EXPECT_LE(d.log_expected[j], 0) << "at most once";
      }
      EXPECT_GE(std::ssize(seen), samples);
      for (size_t n = 0; n < labels.size(); ++n) {
        EXPECT_EQ(d.classes[static_cast<size_t>(d.position[n])], labels[n]);
      }
    }
  }
}

// The expected counts of all classes sum to the number of samples, on average over many steps.
TEST(SampleClasses, ExpectsAsManyAsItDraws) {
  constexpr int64_t kClasses = 200, kSamples = 40, kSteps = 2000;
  const SampleClassesParams p = params(kClasses, kSamples, 1, true);
  std::vector<double> drawn(kClasses), expected(kClasses);
  for (int64_t step = 0; step < kSteps; ++step) {
    // Every class is the label once, since a label's expected count is returned.
    const auto label = static_cast<int32_t>(step % kClasses);
    const Drawn d = reference_draw(p, {label}, step);
    for (size_t j = 0; j < kSamples; ++j) drawn[static_cast<size_t>(d.classes[j])] += 1;
    const auto at = static_cast<size_t>(d.position[0]);
    expected[static_cast<size_t>(label)] +=
        std::exp(static_cast<double>(d.log_expected[at])) * kClasses;
  }
  EXPECT_NEAR(std::accumulate(expected.begin(), expected.end(), 0.0) / kSteps, kSamples,
              0.05 * kSamples);
  for (size_t k = 0; k < kClasses; ++k) {
    const double share = expected[k] / kSteps;
    EXPECT_NEAR(drawn[k] / kSteps, share, 5 * std::sqrt(share * (1 - share) / kSteps) + 0.02) << k;
  }
}

TEST(SampleClasses, IsAFunctionOfSeedAndStep) {
  SampleClassesParams p = params(5000, 64, 2, true);
  const Drawn d = reference_draw(p, {3, 4}, 9);
  EXPECT_EQ(reference_draw(p, {3, 4}, 9), d);
  EXPECT_NE(reference_draw(p, {3, 4}, 10).classes, d.classes);
  p.seed = 8;
  EXPECT_NE(reference_draw(p, {3, 4}, 9).classes, d.classes);
}

TEST(SampleClasses, IsTheSameOnEveryTeam) {
  for (const auto& [classes, samples] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {700, 350}, {1 << 22, 2000}}) {
    SampleClassesParams p = params(classes, samples, 600, true);
    p.ignored = 1;
    std::vector<int32_t> labels;
    for (int64_t n = 0; n < 600; ++n) labels.push_back(static_cast<int32_t>(n * 31 % classes));
    const Drawn expected = reference_draw(p, labels, 2);
    EXPECT_EQ(cpu_draw(p, labels, 2, 1), expected);
    EXPECT_EQ(cpu_draw(p, labels, 2, 3), expected);
  }
}

// With all classes as columns and no correction, the result is the softmax over all classes.
TEST(SampledXent, IsTheSoftmaxWhereAllClassesAreCandidates) {
  constexpr int64_t kRows = 5, kClasses = 7;
  std::vector<double> z(kRows * (kClasses + 1));
  std::vector<double> all(kRows * kClasses);
  std::vector<int32_t> label(kRows);
  for (int64_t n = 0; n < kRows; ++n) {
    label[static_cast<size_t>(n)] = static_cast<int32_t>(n * 3 % kClasses);
    for (int64_t k = 0; k < kClasses; ++k) {
      const double x = std::sin(static_cast<double>(n * 13 + k * 5)) * 3;
      z[static_cast<size_t>(n * (kClasses + 1) + k)] = x;
      all[static_cast<size_t>(n * kClasses + k)] = x;
    }
    // the label's column of another row
    z[static_cast<size_t>(n * (kClasses + 1) + kClasses)] = 100;
  }
  const std::vector<double> none(kClasses + 1);
  std::vector<double> prob(z.size()), dz(z.size()), whole(all.size()), whole_dz(all.size());
  double loss = 0, whole_loss = 0;
  const double dloss = 0.5;
  const SampledXentParams p{kRows, kClasses + 1, kClasses};
  reference::sampled_xent_forward<double>(
      p, {z.data(), label.data(), none.data(), &loss, prob.data()});
  reference::sampled_xent_backward<double>(p, {prob.data(), label.data(), &dloss, dz.data()});
  const SoftmaxXentParams q{kRows, kClasses};
  reference::softmax_xent_forward<double, int32_t>(
      q, {all.data(), label.data(), &whole_loss, whole.data()});
  reference::softmax_xent_backward<double, int32_t>(
      q, {whole.data(), label.data(), &dloss, whole_dz.data()});
  EXPECT_NEAR(loss, whole_loss, 1e-14);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t k = 0; k < kClasses; ++k) {
      const auto at = static_cast<size_t>(n * (kClasses + 1) + k);
      EXPECT_NEAR(prob[at], whole[static_cast<size_t>(n * kClasses + k)], 1e-15);
      EXPECT_NEAR(dz[at], whole_dz[static_cast<size_t>(n * kClasses + k)], 1e-15);
    }
    EXPECT_EQ(dz[static_cast<size_t>(n * (kClasses + 1) + kClasses)], 0);
  }
}

}  // namespace
}  // namespace trainyard::kernels
