// Tests of the dropout of attention's probabilities. The cases in tests/support/sequence_cases.cc
// cover its gradient and its parity between backends.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;

constexpr int64_t kKeys = 90, kQueries = 70, kHeads = 3;

/// Returns the dropout mask m. Queries of 0 give all keys the same weight, and value j is 1 at
/// element j only, so y[i, j] is m[i, j] / keys.
std::vector<double> masks(Backend& backend, double ratio, int64_t step, int64_t stream) {
  CaseBuilder b(DType::kF32);
  const TensorId q = b.input("q", {1, kQueries, kHeads * kKeys}),
                 k = b.input("k", {1, kKeys, kHeads * kKeys}),
                 v = b.input("v", {1, kKeys, kHeads * kKeys});
  const TensorId y =
      b.node("y", "Attention", {{"q_num_heads", kHeads}, {"dropout", ratio}, {"stream", stream}},
             {q, k, v, b.step(step)}, 2)[0];
  CaseGraph c = b.finish_update();
  c.graph.mark_output(y);
  std::fill(c.values.at(q).begin(), c.values.at(q).end(), 0.0);
  for (size_t i = 0; i < c.values.at(v).size(); ++i) {
    const auto row = static_cast<int64_t>(i) / (kHeads * kKeys);
    c.values.at(v)[i] = static_cast<int64_t>(i) % kKeys == row ? 1 : 0;
  }
  return testing::run_case(c, backend, {}).values.at("y");
}

TEST(AttentionDropout, DropsTheShareAndScalesTheRest) {
  for (const bool is_cpu : {false, true}) {
    const auto backend = is_cpu ? make_cpu_backend(2) : make_reference_backend();
    const std::vector<double> y = masks(*backend, 0.25, 4, 9);
    double kept = 0;
    for (const double value : y) {
      if (value == 0) continue;
      ++kept;
      EXPECT_NEAR(value, 1 / (0.75 * kKeys), 1e-7);
    }
    // Four standard deviations of the mean of n draws.
    const auto n = static_cast<double>(y.size());
    EXPECT_NEAR(kept / n, 0.75, 4 * std::sqrt(0.25 * 0.75 / n));
  }
}

TEST(AttentionDropout, DrawsDifferForEachStepLayerQueryAndHead) {
  const auto cpu = make_cpu_backend(1);
  const std::vector<double> y = masks(*cpu, 0.5, 4, 9);
  EXPECT_EQ(y, masks(*cpu, 0.5, 4, 9));
  EXPECT_NE(y, masks(*cpu, 0.5, 5, 9));
  EXPECT_NE(y, masks(*cpu, 0.5, 4, 10));
  std::set<std::vector<double>> rows;
  for (auto row = y.begin(); row != y.end(); row += kKeys) rows.emplace(row, row + kKeys);
  EXPECT_EQ(std::ssize(rows), kQueries * kHeads);
}

/// The bytes that a plan of attention with its gradient needs for one row of `context` tokens.
int64_t planned_bytes(int64_t context) {
  CaseBuilder b(DType::kF32);
  const TensorId q = b.parameter("q", {1, context, 6 * 16}),
                 k = b.parameter("k", {1, context, 2 * 16}),
                 v = b.parameter("v", {1, context, 2 * 16});
  const TensorId y =
      b.node("y", "Attention",
             {{"q_num_heads", int64_t{6}}, {"kv_num_heads", int64_t{2}}, {"is_causal", int64_t{1}}},
             {q, k, v, kNoTensor, b.tokens("positions", {1, context}, 1)}, 2)[0];
  std::map<TensorId, TensorId> gradients;
  const CaseGraph c = testing::with_gradients(b.finish(y), &gradients);
  const auto backend = make_cpu_backend(2);
  return testing::run_case(c, *backend, {}).planned_bytes;
}

TEST(AttentionMemory, GrowsWithTheContextNotWithItsSquare) {
  const int64_t one = planned_bytes(128), two = planned_bytes(256), four = planned_bytes(512);
  EXPECT_GT(two, one);
  EXPECT_EQ(four - two, 2 * (two - one));
}

}  // namespace
}  // namespace trainyard
