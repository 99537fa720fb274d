// Catches: a CUDA kernel, or a description for cuBLASLt or cuDNN, that computes something else than
// the reference loops in double. The kernels are those that nvcc compiles for the module, run by
// the emulator (kernels/cuda/emulator.h); the libraries are fakes that follow their descriptors
// (fake_cuda.h). All memory starts as NaN, to catch a kernel that does not write all elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "src/calibration/device_check.h"
#include "src/runtime/cuda/backend.h"
#include "tests/cuda/engine_algorithms.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/parity.h"
#include "tests/cuda/real_shapes.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

TEST(EmulatedCuda, EveryCaseOfTheTable) {
  cuda::CudaBackend cuda(0);
  testing::expect_parity(cuda, Precision::kFp32);
}
TEST(EmulatedCuda, EveryCaseOfTheTableInBf16) {
  cuda::CudaBackend cuda(0);
  testing::expect_parity(cuda, Precision::kBf16);
}
// Kernels access tensors through views, so whatever works in bf16 works in fp16 if the views do.
TEST(EmulatedCuda, EveryOpInFp16) {
  cuda::CudaBackend cuda(0);
  testing::expect_parity(cuda, Precision::kFp16, testing::Cases::kOneOfEachOp);
}
TEST(EmulatedCuda, EveryOpInTf32) {
  cuda::CudaBackend cuda(0);
  testing::expect_parity(cuda, Precision::kTf32, testing::Cases::kOneOfEachOp);
}
// Catches: F32 products that round their operands although TF32 is off, and TF32 that is not passed
// on to a library.
TEST(EmulatedCuda, Tf32RoundsWhatProductsMultiply) {
  cuda::CudaBackend cuda(0);
  // our own kernels do not round to TF32
  cuda.use_algorithms(std::make_shared<testing::EngineAlgorithms>());
  testing::expect_tf32_in_products_alone(cuda);
}
// Small convolutions run on our own kernels, unless timing finds a faster engine.
TEST(EmulatedCuda, ConvolutionsByAnEngine) {
  cuda::CudaBackend cuda(0);
  cuda.use_algorithms(std::make_shared<testing::EngineAlgorithms>());
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    testing::expect_parity(cuda, precision, testing::Cases::kAll, "Conv");
    testing::expect_right(cuda, testing::small_shapes(), precision);
  }
  testing::expect_repeats(cuda, Precision::kFp32, "Conv");
}
// Without the library's epilogues, the backend's own kernels do their work.
TEST(EmulatedCuda, ProductsWithoutEpilogues) {
  testing::set_product_epilogues(false);
  cuda::CudaBackend cuda(0);
  testing::expect_parity(cuda, Precision::kFp32, testing::Cases::kAll, "Gemm");
  testing::expect_parity(cuda, Precision::kBf16, testing::Cases::kAll, "Gemm");
  testing::set_product_epilogues(true);
}
// No document says which epilogues the real library has for which types and transposition, whether
// its algorithms run, or whether their ReLU keeps NaN. Each seed draws another library.
TEST(EmulatedCuda, ProductsOfAnUnevenLibrary) {
  testing::ProductCounts all;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    testing::set_product_seed(seed);
    cuda::CudaBackend cuda(0);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      testing::expect_parity(cuda, precision, testing::Cases::kAll, "Gemm");
      testing::expect_parity(cuda, precision, testing::Cases::kOneOfEachOp, "MatMul");
    }
    testing::expect_nan_through_relu(cuda);
    const testing::ProductCounts drawn = testing::product_counts();
    all.missing_epilogues += drawn.missing_epilogues;
    all.failed_runs += drawn.failed_runs;
    all.without_workspace += drawn.without_workspace;
    all.lost_nan += drawn.lost_nan;
    all.empty_results += drawn.empty_results;
  }
  testing::set_product_seed(0);
  EXPECT_GT(all.missing_epilogues, 0);
  EXPECT_GT(all.failed_runs, 0);
  EXPECT_GT(all.without_workspace, 0);
  EXPECT_GT(all.lost_nan, 0);
  EXPECT_GT(all.empty_results, 0);
}
// Epilogues that the library offers are used: a GELU and its gradient, and the gradients of two
// biases.
TEST(EmulatedCuda, EpiloguesSaveLaunches) {
  cuda::CudaBackend cuda(0);
  const auto launches = [&](const testing::GraphCase& test) {
    std::map<TensorId, TensorId> gradients;
    const testing::CaseGraph c = testing::with_gradients(test.build(DType::kF32), &gradients);
    const int64_t before = testing::replayed_works();
    testing::run_case(c, cuda, {.keep_all = false, .runs = 2});
    return testing::replayed_works() - before;
  };
  const auto& cases = testing::graph_cases();
  const auto test = std::ranges::find(cases, "GemmGelu/eights", &testing::GraphCase::name);
  ASSERT_NE(test, cases.end());
  const int64_t with = launches(*test);
  testing::set_product_epilogues(false);
  EXPECT_GE(launches(*test), with + 4);
  testing::set_product_epilogues(true);
}
// ReLU and its gradient run within the product, unless the algorithm then loses a NaN. The case has
// two such products in each direction.
TEST(EmulatedCuda, NanGoesThroughReluOfProducts) {
  const auto& cases = testing::graph_cases();
  const auto test = std::ranges::find(cases, "GemmRelu/odd", &testing::GraphCase::name);
  ASSERT_NE(test, cases.end());
  std::map<TensorId, TensorId> gradients;
  const testing::CaseGraph c = testing::with_gradients(test->build(DType::kF32), &gradients);
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    SCOPED_TRACE(name_of(precision));
    int64_t works[2] = {};
    for (const bool heeds : {true, false}) {
      SCOPED_TRACE(heeds ? "an algorithm that heeds NaN" : "one that does not");
      testing::set_relu_heeds_nan(heeds);
      cuda::CudaBackend cuda(0);
      testing::expect_nan_through_relu(cuda);
      testing::expect_parity(cuda, precision, testing::Cases::kAll, "GemmRelu");
      const int64_t before = testing::replayed_works();
      testing::run_case(c, cuda, {.keep_all = false, .runs = 2, .precision = precision});
      works[heeds ? 0 : 1] = testing::replayed_works() - before;
    }
    EXPECT_EQ(works[0] + 4, works[1]);
  }
  testing::set_relu_heeds_nan(true);
}
TEST(EmulatedCuda, NanGoesThroughReluOfOurKernels) {
  cuda::CudaBackend cuda(0);
  testing::expect_nan_through_relu(cuda);
}
// ReLU runs within cuDNN's convolution, unless the engine then loses a NaN.
TEST(EmulatedCuda, NanGoesThroughRelu) {
  const auto& cases = testing::graph_cases();
  const auto test = std::ranges::find(cases, "ConvRelu/fours", &testing::GraphCase::name);
  ASSERT_NE(test, cases.end());
  int64_t works[2] = {};
  for (const bool heeds : {true, false}) {
    SCOPED_TRACE(heeds ? "an engine that heeds NaN" : "one that does not");
    testing::set_relu_heeds_nan(heeds);
    cuda::CudaBackend cuda(0);
    cuda.use_algorithms(std::make_shared<testing::EngineAlgorithms>());
    testing::expect_nan_through_relu(cuda);
    testing::expect_parity(cuda, Precision::kFp32, testing::Cases::kAll, "ConvRelu");
    testing::expect_parity(cuda, Precision::kBf16, testing::Cases::kAll, "ConvRelu");
    const int64_t before = testing::replayed_works();
    testing::run_case(test->build(DType::kF32), cuda, {.keep_all = false, .runs = 2});
    works[heeds ? 0 : 1] = testing::replayed_works() - before;
  }
  testing::set_relu_heeds_nan(true);
  EXPECT_EQ(works[0] + 1, works[1]);
}

TEST(EmulatedCuda, HasAKernelForEveryOp) {
  EXPECT_EQ(testing::missing_ops(cuda::CudaBackend(0)), "");
}
// The emulator runs threads in another order each time, so a race changes the bits.
TEST(EmulatedCuda, RepeatsBitByBit) {
  cuda::CudaBackend cuda(0);
  testing::expect_repeats(cuda);
}

// The shapes of real networks run only on a GPU (parity_test.cc).
TEST(EmulatedCuda, ConvolutionsAndProductsAreTheCpus) {
  cuda::CudaBackend cuda(0);
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    testing::expect_right(cuda, testing::small_shapes(), precision);
  }
}

/// Also enables engines for F32 gradients of filters, so that timing can choose among all ways.
class EmulatedCandidates : public ::testing::Test {
 protected:
  EmulatedCandidates() { testing::set_wide_gradients(true); }
  ~EmulatedCandidates() override {
    testing::set_wide_gradients(false);
    testing::set_reads_workspace(false);
  }
  cuda::CudaBackend cuda_{0};
};

TEST_F(EmulatedCandidates, AreAllRight) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    testing::expect_right(cuda_, testing::small_shapes(), precision, testing::Candidates::kAll);
  }
}
TEST_F(EmulatedCandidates, OfTheTableAreAllRight) {
  testing::expect_parity_of_candidates(cuda_, Precision::kFp32);
  testing::expect_parity_of_candidates(cuda_, Precision::kBf16);
}
// Some engines rely on another kernel to clear their workspace; they compute correctly only if the
// memory happens to be zero.
TEST_F(EmulatedCandidates, OneThatReadsItsWorkspaceBeforeItWritesItIsFound) {
  testing::set_reads_workspace(true);
  const auto wrong = testing::find_wrong(cuda_, testing::small_shapes(), Precision::kBf16,
                                         testing::Candidates::kAll);
  EXPECT_FALSE(wrong.empty());
  for (const std::string& what : wrong) {
    EXPECT_NE(what.find("nan, expected"), std::string::npos) << what;
  }
}

TEST_F(EmulatedCandidates, ThatThereIsNoTimeForAreSaidToBeLeftOut) {
  ::setenv("TRAINYARD_CANDIDATE_SECONDS", "0", 1);
  ::testing::internal::CaptureStdout();
  testing::expect_right(cuda_, testing::small_shapes(), Precision::kBf16,
                        testing::Candidates::kAll);
  const std::string said = ::testing::internal::GetCapturedStdout();
  ::unsetenv("TRAINYARD_CANDIDATE_SECONDS");
  EXPECT_EQ(said,
            "left out: 10 cases, from 1x1, eights, bf16, candidate 1 on; the time was over behind "
            "0 candidates\n");
}

TEST_F(EmulatedCandidates, AreSharedByProcesses) {
  std::vector<std::string> compared;
  for (const char* part : std::vector<const char*>{"1/3", "2/3", "3/3", nullptr}) {
    part == nullptr ? ::unsetenv("TRAINYARD_CANDIDATE_PART")
                    : ::setenv("TRAINYARD_CANDIDATE_PART", part, 1);
    ::testing::internal::CaptureStdout();
    testing::expect_right(cuda_, testing::small_shapes(), Precision::kFp32,
                          testing::Candidates::kAll);
    std::istringstream said(::testing::internal::GetCapturedStdout());
    std::vector<std::string> names;
    for (std::string line; std::getline(said, line);) {
      if (line.find(", candidate ") != std::string::npos) names.push_back(line);
    }
    EXPECT_FALSE(names.empty());
    if (part != nullptr) {
      compared.insert(compared.end(), names.begin(), names.end());
      continue;
    }
    std::ranges::sort(names);
    std::ranges::sort(compared);
    EXPECT_EQ(compared, names);
  }
}

// The daemon's check of a GPU trains whole networks, with recording, staging and steps that run
// ahead.
TEST(EmulatedCuda, PassesItsCheck) {
  cuda::CudaBackend cuda(0);
  const auto cpu = make_cpu_backend(2);
  const DeviceCheck check = check_device(cuda, *cpu, [](const DeviceCheckRow& row) {
    std::printf("%-26s loss %.1e, weights %.1e\n", row.network.c_str(), row.loss, row.weights);
    return true;
  });
  EXPECT_EQ(check.failure(), "");
}

// A GPU without bfloat16 is checked in fp16, whose first steps overflow and are skipped.
TEST(EmulatedCuda, PassesItsCheckWithoutBfloat16) {
  testing::set_device_capability(7, 5);
  std::vector<std::string> names;
  {
    cuda::CudaBackend cuda(0);
    const auto cpu = make_cpu_backend(2);
    const DeviceCheck check = check_device(cuda, *cpu, [&](const DeviceCheckRow& row) {
      names.push_back(row.network);
      return true;
    });
    EXPECT_EQ(check.failure(), "");
  }
  testing::set_device_capability(9, 0);
  EXPECT_NE(std::ranges::find(names, "resnet18 fp16"), names.end());
  EXPECT_EQ(std::ranges::find(names, "resnet18 bf16"), names.end());
}

TEST(EmulatedCuda, RecordsAStepAndReplaysIt) {
  cuda::CudaBackend cuda(0);
  for (const testing::GraphCase& test : testing::graph_cases()) {
    const testing::CaseGraph c = test.build(DType::kF32);
    const int64_t before = testing::replayed_works();
    testing::RunOptions options;
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

TEST(EmulatedCuda, F15OutOfMemoryIsBadAlloc) {
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
