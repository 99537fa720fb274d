// The loss over classes split into parts equals that over all classes: loss, probabilities and
// gradient, also with infinite or NaN scores, and with parts that have no class.
#include "kernels/split_xent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels {
namespace {

struct Outcome {
  double loss = 0;
  std::vector<double> prob, dz;  // [N, K]
};

/// `on` calls the functions of a backend: f(params, operands).
template <typename T, typename Run>
Outcome by_parts(const SoftmaxXentParams& loss, const std::vector<T>& z,
                 const std::vector<int32_t>& label, int64_t parts, const Run& run) {
  const int64_t N = loss.rows, K = loss.classes, width = (K + parts - 1) / parts;
  const T dloss = T(0.5);
  std::vector<T> statistics(static_cast<size_t>(parts * N * kClassStatistics));
  std::vector<std::vector<T>> q(static_cast<size_t>(parts));
  std::vector<SplitXentParams> params;
  for (int64_t p = 0; p < parts; ++p) {
    SplitXentParams s;
    s.loss = loss;
    s.width = width;
    s.parts = parts;
    s.part = p;
    s.first = class_part_first(K, width, p);
    s.count = class_part_first(K, width, p + 1) - s.first;
    params.push_back(s);
    std::vector<T>& own = q[static_cast<size_t>(p)];
    own.assign(static_cast<size_t>(N * width), T(7));  // the padding is not a score
    for (int64_t i = 0; i < N * s.count; ++i) {
      const int64_t n = i / s.count, k = i % s.count;
      own[static_cast<size_t>(n * width + k)] = z[static_cast<size_t>(n * K + s.first + k)];
    }
    run.softmax(s,
                ClassSoftmaxOperands<T>{own.data(), label.data(),
                                        statistics.data() + p * N * kClassStatistics, own.data()});
  }
  Outcome outcome;
  outcome.prob.resize(static_cast<size_t>(N * K));
  outcome.dz.resize(static_cast<size_t>(N * K));
  for (const SplitXentParams& s : params) {
    T total = 0;
    std::vector<T>& own = q[static_cast<size_t>(s.part)];
    run.forward(
        s, SplitXentOperands<T>{own.data(), label.data(), statistics.data(), &total, own.data()});
    std::vector<T> dz(own.size());
    run.backward(s, SplitXentGradOperands<T>{own.data(), label.data(), &dloss, dz.data()});
    outcome.loss = s.part == 0 ? static_cast<double>(total) : outcome.loss;
    EXPECT_TRUE(std::isnan(total) || static_cast<double>(total) == outcome.loss) << s.part;
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < s.count; ++k) {
        const auto at = static_cast<size_t>(n * K + s.first + k);
        outcome.prob[at] = static_cast<double>(own[static_cast<size_t>(n * width + k)]);
        outcome.dz[at] = static_cast<double>(dz[static_cast<size_t>(n * width + k)]);
      }
      for (int64_t k = s.count; k < width; ++k) {
        EXPECT_EQ(dz[static_cast<size_t>(n * width + k)], T(0));
      }
    }
  }
  return outcome;
}

template <typename T>
struct OnReference {
  void softmax(const SplitXentParams& p, const ClassSoftmaxOperands<T>& o) const {
    reference::class_softmax<T>(p, o);
  }
  void forward(const SplitXentParams& p, const SplitXentOperands<T>& o) const {
    reference::split_xent_forward<T>(p, o);
  }
  void backward(const SplitXentParams& p, const SplitXentGradOperands<T>& o) const {
    reference::split_xent_backward<T>(p, o);
  }
};
struct OnCpu {
  mutable cpu::Team team{2};
  alignas(64) mutable double workspace[64] = {};
  void softmax(const SplitXentParams& p, const ClassSoftmaxOperands<float>& o) const {
    cpu::class_softmax(p, o, {team});
  }
  void forward(const SplitXentParams& p, const SplitXentOperands<float>& o) const {
    cpu::split_xent_forward(p, o, {team, workspace});
  }
  void backward(const SplitXentParams& p, const SplitXentGradOperands<float>& o) const {
    cpu::split_xent_backward(p, o, {team});
  }
};

Outcome whole(const SoftmaxXentParams& loss, const std::vector<double>& z,
              const std::vector<int32_t>& label) {
  Outcome outcome;
  outcome.prob.resize(z.size());
  outcome.dz.resize(z.size());
  const double dloss = 0.5;
  reference::softmax_xent_forward<double, int32_t>(
      loss, {z.data(), label.data(), &outcome.loss, outcome.prob.data()});
  reference::softmax_xent_backward<double, int32_t>(
      loss, {outcome.prob.data(), label.data(), &dloss, outcome.dz.data()});
  return outcome;
}

void expect_like(const Outcome& got, const Outcome& expected, double bound) {
  EXPECT_NEAR(got.loss, expected.loss, bound * std::max(1.0, std::fabs(expected.loss)));
  for (size_t i = 0; i < expected.prob.size(); ++i) {
    EXPECT_NEAR(got.prob[i], expected.prob[i], bound) << i;
    EXPECT_NEAR(got.dz[i], expected.dz[i], bound) << i;
  }
}

TEST(SplitXent, PartsGiveTheWhole) {
  constexpr int64_t kRows = 5;
  for (const int64_t K : {2, 5, 11}) {
    std::vector<double> z;
    std::vector<int32_t> label;
    for (int64_t i = 0; i < kRows * K; ++i) z.push_back(20 * std::sin(static_cast<double>(i * i)));
    for (int64_t n = 0; n < kRows; ++n) label.push_back(static_cast<int32_t>(n * 3 % K));
    const std::vector<float> z32(z.begin(), z.end());
    const std::vector<double> z_of_32(z32.begin(), z32.end());
    std::vector<double> weights;
    for (int64_t k = 0; k < K; ++k) weights.push_back(0.5 * static_cast<double>(k));
    for (const SoftmaxXentParams& loss :
         {SoftmaxXentParams{kRows, K}, SoftmaxXentParams{kRows, K, 0.25},
          SoftmaxXentParams{kRows, K, 0.1, 1, weights}, SoftmaxXentParams{kRows, K, 0, 0}}) {
      for (const int64_t parts : {1, 2, 3, 4, 8}) {
        SCOPED_TRACE(std::to_string(K) + " classes in " + std::to_string(parts));
        expect_like(by_parts<double>(loss, z, label, parts, OnReference<double>()),
                    whole(loss, z, label), 1e-12);
        expect_like(by_parts<float>(loss, z32, label, parts, OnReference<float>()),
                    whole(loss, z_of_32, label), 3e-6);
        expect_like(by_parts<float>(loss, z32, label, parts, OnCpu()), whole(loss, z_of_32, label),
                    3e-6);
      }
    }
  }
}

// A class with the score -infinity has the probability 0 in every part, even if its part has no
// other class.
TEST(SplitXent, InfinitelySmallScoresDoNotCount) {
  const double none = -std::numeric_limits<double>::infinity();
  const std::vector<double> z = {none, none, 1, 2, none, none, none, 3, none, 4, 5, none};
  const std::vector<int32_t> label = {2, 3};
  const SoftmaxXentParams loss{2, 6};
  const std::vector<float> z32(z.begin(), z.end());
  for (const int64_t parts : {1, 2, 3, 6}) {
    SCOPED_TRACE(parts);
    expect_like(by_parts<double>(loss, z, label, parts, OnReference<double>()),
                whole(loss, z, label), 1e-12);
    expect_like(by_parts<float>(loss, z32, label, parts, OnCpu()), whole(loss, z, label), 3e-6);
  }
}

TEST(SplitXent, NaNReachesEveryPartsLoss) {
  std::vector<float> z(12, 0.5f);
  const std::vector<int32_t> label = {0, 1};
  for (size_t at : {size_t{0}, size_t{3}, size_t{11}}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      z.assign(12, 0.5f);
      z[at] = bad;
      EXPECT_TRUE(std::isnan(by_parts<float>({2, 6}, z, label, 3, OnCpu()).loss)) << at;
      EXPECT_TRUE(std::isnan(by_parts<float>({2, 6}, z, label, 3, OnReference<float>()).loss))
          << at;
    }
  }
}

TEST(SplitXent, ContractsNameWhatIsWrong) {
  SplitXentParams p;
  p.loss = {2, 6};
  p.width = 2;
  p.parts = 3;
  p.part = 1;
  p.first = 2;
  p.count = 1;
  const std::vector<float> z(4);
  const std::vector<int32_t> label = {0, 1};
  std::vector<float> out(8);
  EXPECT_THROW(reference::class_softmax<float>(p, {z.data(), label.data(), out.data(), out.data()}),
               ContractError);
  p.count = 2;
  EXPECT_THROW(reference::class_softmax<float>(p, {z.data(), nullptr, out.data(), out.data()}),
               ContractError);
}

}  // namespace
}  // namespace trainyard::kernels
