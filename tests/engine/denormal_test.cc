// Programs compute with denormal numbers flushed to zero. That holds for every kernel on every
// thread, and for no other code of the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "kernels/cpu/flush_denormals.h"
#include "src/graph/op.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using kernels::cpu::flush_mode;
using testing::CaseBuilder;
using testing::CaseGraph;
using testing::CaseResult;
using testing::graph_cases;
using testing::GraphCase;

bool is_denormal(double value) {
  return value != 0 && std::abs(value) < static_cast<double>(std::numeric_limits<float>::min());
}

/// Builds the case with its gradients, multiplies its floating-point inputs by `scale` and rounds
/// them to float.
CaseGraph scaled(const GraphCase& test, DType dtype, double scale) {
  CaseGraph c = test.build(dtype);
  if (c.loss != kNoTensor) {
    std::map<TensorId, TensorId> gradients;
    c = testing::with_gradients(std::move(c), &gradients);
  }
  for (auto& [id, values] : c.values) {
    if (!is_float(c.graph.tensor(id).type.dtype)) continue;
    for (double& value : values) value = static_cast<double>(static_cast<float>(value * scale));
  }
  return c;
}

int64_t denormals_of(const CaseResult& result, const std::string& name) {
  int64_t count = 0;
  for (const double value : result.values.at(name)) count += is_denormal(value) ? 1 : 0;
  return count;
}

// Runs every op, gradient and update of the table of cases with numbers so small that products or
// halves are denormal: about 2^-66, and 2^-122, which is 16 times the smallest normal number.
TEST(Denormals, NoKernelProducesOne) {
  const auto reference = make_reference_backend();
  int64_t would_be = 0;
  for (const double scale : {0x1p-66, 0x1p-122}) {
    for (const GraphCase& test : graph_cases()) {
      const CaseResult wide = testing::run_case(scaled(test, DType::kF64, scale), *reference, {});
      for (const auto& [name, values] : wide.values) would_be += denormals_of(wide, name);
      const CaseGraph narrow = scaled(test, DType::kF32, scale);
      const auto check = [&](Backend& backend, const std::string& where) {
        const CaseResult got = testing::run_case(narrow, backend, {});
        for (const TensorInfo& t : got.program.graph.tensors()) {
          if (t.type.dtype != DType::kF32 || !got.values.contains(t.name)) continue;
          EXPECT_EQ(denormals_of(got, t.name), 0) << test.name << ": " << t.name << ", " << where;
        }
      };
      check(*reference, "reference");
      for (const int threads : {1, 2, 3}) {
        const auto cpu = make_cpu_backend(threads);
        check(*cpu, std::to_string(threads) + " threads");
      }
    }
  }
  EXPECT_GT(would_be, 10'000) << "the numbers are not small enough to tell anything";
}

/// Returns the tensors that a layer, its loss and its gradient compute from numbers of 2^-40 to
/// 2^-90.
std::map<std::string, std::vector<double>> small_values(int threads) {
  CaseBuilder b(DType::kF32);
  const Shape shape = {512, 512};  // large enough that kernels split it over three threads
  const TensorId product =
      b.one("product", "Mul", {}, {b.input("x", shape), b.parameter("w", shape)});
  std::map<TensorId, TensorId> gradients;
  CaseGraph c = testing::with_gradients(b.finish(product), &gradients);
  for (auto& [id, values] : c.values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::ldexp(values[i], -40 - static_cast<int>(i % 50));
    }
  }
  const auto cpu = make_cpu_backend(threads);
  return testing::run_case(c, *cpu, {}).values;
}

TEST(Denormals, BitsAreTheSameOnAnyNumberOfThreads) {
  const auto one = small_values(1);
  const std::vector<double>& product = one.at("product");
  const int64_t zeros = std::ranges::count(product, 0.0);
  EXPECT_GT(zeros, 100'000);
  EXPECT_LT(zeros, std::ssize(product) - 100'000);
  for (const int threads : {2, 3}) EXPECT_TRUE(small_values(threads) == one) << threads;
}

// A copy keeps denormal bits, so that a weight loaded from a file is written back unchanged.
TEST(Denormals, ACopyKeepsItsBits) {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.input("x", {4, 3});
  const TensorId y = b.one("y", "Transpose", {{"perm", std::vector<int64_t>{1, 0}}}, {x});
  CaseGraph c = b.finish(y);
  c.values.at(x).assign(12, 1e-40);
  const auto cpu = make_cpu_backend(1);
  const CaseResult result = testing::run_case(c, *cpu, {});
  for (const double value : result.values.at("y")) EXPECT_EQ(value, static_cast<double>(1e-40f));
}

TEST(Denormals, ARunRestoresTheThreadsMode) {
  ASSERT_EQ(flush_mode(), 0u);
  CaseBuilder b(DType::kF32);
  const CaseGraph c = b.finish(b.one("y", "Relu", {}, {b.input("x", {4, 3})}));
  for (const int threads : {1, 2}) {
    const auto cpu = make_cpu_backend(threads);
    (void)testing::run_case(c, *cpu, {});
    EXPECT_EQ(flush_mode(), 0u);
  }
}

}  // namespace
}  // namespace trainyard
