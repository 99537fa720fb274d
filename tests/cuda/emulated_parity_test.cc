// Catches: a CUDA kernel, or what the backend tells cuBLASLt and cuDNN, that computes something
// else than the plain loops in double. The kernels are those that nvcc compiles for the module, run
// by the emulator (kernels/cuda/emulator.h); the libraries are fakes that do what they are told
// (fake_cuda.h). All memory starts as NaN, so what a kernel forgets to write shows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "src/graph/op.h"
#include "src/runtime/cuda/backend.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseGraph;
using testing::CaseResult;
using testing::graph_cases;
using testing::GraphCase;
using testing::RunOptions;

// As in cpu_parity_test.cc: float against double, and roundings to bf16 that fall differently.
constexpr double kRelativeMax = 3e-5;
// Beside what the cpu backend rounds, products of bf16 tensors narrow an F32 operand, as PyTorch's
// autocast does: half a unit in the last place of each factor.
constexpr double kRelativeMaxBf16 = 12.0 / 256;

void expect_parity(const CaseResult& actual, const CaseResult& expected, double relative_max) {
  EXPECT_LE(actual.used_bytes, actual.planned_bytes);
  for (const auto& [name, got] : actual.values) {
    ASSERT_TRUE(expected.values.contains(name)) << name;
    const std::vector<double>& values = expected.values.at(name);
    ASSERT_EQ(got.size(), values.size());
    double scale = 1e-3;
    for (const double v : values) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(got[i] - values[i]), relative_max * scale)
          << name << "[" << i << "] " << got[i] << ", expected " << values[i];
    }
  }
}

bool is_covered(const Backend& cuda, const CaseGraph& c) {
  for (const Node& n : c.graph.nodes()) {
    if (!cuda.has_kernel(n.op->type())) return false;
  }
  return true;
}

/// Cases whose name holds TRAINYARD_CASE, where that is set: for work on one kernel.
bool is_wanted(const GraphCase& test) {
  const char* part = std::getenv("TRAINYARD_CASE");
  return part == nullptr || test.name.find(part) != std::string::npos;
}

void check_cases(Precision precision, double relative_max) {
  const auto reference = make_reference_backend();
  const bool bf16 = precision == Precision::kBf16;
  cuda::CudaBackend cuda(0);
  for (const GraphCase& test : graph_cases()) {
    std::map<TensorId, TensorId> gradients;
    CaseGraph narrow = test.build(DType::kF32);
    CaseGraph wide = bf16 ? narrow : test.build(DType::kF64);
    if (narrow.loss != kNoTensor) {
      narrow = testing::with_gradients(std::move(narrow), &gradients);
      wide = bf16 ? narrow : testing::with_gradients(std::move(wide), &gradients);
    }
    if (!is_wanted(test) || !is_covered(cuda, narrow)) continue;
    for (const bool channels_last : {true, false}) {
      RunOptions options{channels_last};
      options.precision = precision;
      const CaseResult expected = testing::run_case(wide, *reference, options);
      for (const bool keep_all : {true, false}) {
        SCOPED_TRACE(test.name + (channels_last ? " channels-last" : " row-major") +
                     (keep_all ? " kept" : " reused"));
        options.keep_all = keep_all;
        options.runs = 3;  // one by one, recorded, replayed
        expect_parity(testing::run_case(narrow, cuda, options), expected, relative_max);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(EmulatedCuda, EveryCaseOfTheTable) { check_cases(Precision::kFp32, kRelativeMax); }
TEST(EmulatedCuda, EveryCaseOfTheTableInBf16) { check_cases(Precision::kBf16, kRelativeMaxBf16); }

TEST(EmulatedCuda, HasAKernelForEveryOp) {
  const cuda::CudaBackend cuda(0);
  std::string missing;
  for (const Op* op : all_ops()) {
    if (!cuda.has_kernel(op->type())) missing += " " + std::string(op->type());
  }
  EXPECT_EQ(missing, "");
}

TEST(EmulatedCuda, RepeatsBitByBit) {
  cuda::CudaBackend cuda(0);
  for (const GraphCase& test : graph_cases()) {
    std::map<TensorId, TensorId> gradients;
    CaseGraph c = test.build(DType::kF32);
    if (c.loss != kNoTensor) c = testing::with_gradients(std::move(c), &gradients);
    if (!is_wanted(test) || !is_covered(cuda, c)) continue;
    const CaseResult first = testing::run_case(c, cuda, {}),
                     second = testing::run_case(c, cuda, {});
    for (const auto& [name, values] : first.values) {
      const std::vector<double>& again = second.values.at(name);
      ASSERT_EQ(values.size(), again.size());
      for (size_t i = 0; i < values.size(); ++i) {
        // Threads went on in another order: a race shows here.
        ASSERT_TRUE(values[i] == again[i] || (std::isnan(values[i]) && std::isnan(again[i])))
            << test.name << " " << name << "[" << i << "] " << values[i] << " and " << again[i];
      }
    }
  }
}

TEST(EmulatedCuda, RecordsAStepAndReplaysIt) {
  cuda::CudaBackend cuda(0);
  for (const GraphCase& test : graph_cases()) {
    CaseGraph c = test.build(DType::kF32);
    if (!is_covered(cuda, c)) continue;
    const int64_t before = testing::replayed_works();
    RunOptions options;
    options.runs = 2;
    testing::run_case(c, cuda, options);
    EXPECT_GT(testing::replayed_works(), before) << test.name;
    return;
  }
}

TEST(EmulatedCuda, CopiesOfAllSizesArrive) {
  cuda::CudaBackend cuda(0);
  for (const size_t size :
       {size_t{1}, size_t{1000}, size_t{65536}, size_t{9} << 20, size_t{80} << 20}) {
    std::vector<unsigned char> host(size), back(size);
    for (size_t i = 0; i < size; ++i) host[i] = static_cast<unsigned char>(i * 7 + i / 4096);
    void* const device = cuda.allocate(static_cast<int64_t>(size));
    cuda.copy_to_device(device, host.data(), static_cast<int64_t>(size));
    cuda.copy_to_host(back.data(), device, static_cast<int64_t>(size));
    EXPECT_TRUE(back == host) << size;
    cuda.release(device);
  }
}

TEST(EmulatedCuda, OutOfMemoryIsBadAlloc) {
  cuda::CudaBackend cuda(0);
  testing::set_device_limit(1 << 20);
  EXPECT_THROW(cuda.allocate(2 << 20), std::bad_alloc);
  testing::set_device_limit(int64_t{1} << 34);
  cuda.release(cuda.allocate(2 << 20));
}

TEST(EmulatedCuda, LeavesNothingBehind) {
  const int64_t before = testing::device_bytes();
  {
    cuda::CudaBackend cuda(0);
    const float x = 1;
    void* const device = cuda.allocate(64);
    cuda.copy_to_device(device, &x, sizeof x);
    cuda.release(device);
  }
  EXPECT_EQ(testing::device_bytes(), before);
}

}  // namespace
}  // namespace trainyard
