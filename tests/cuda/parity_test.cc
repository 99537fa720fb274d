// Catches: a CUDA kernel that differs from the reference loops. Needs a GPU; skips without one.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

#include "src/runtime/cuda_module.h"
#include "tests/cuda/nth_candidate.h"
#include "tests/cuda/parity.h"
#include "tests/cuda/real_shapes.h"
#include "tests/cuda/tested_module.h"

namespace trainyard {
namespace {

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_cuda_backend(testing::tested_module(), 0);
    if (!opened.ok()) GTEST_SKIP() << "no GPU: " << opened.error().message;
    cuda_ = std::move(*opened);
    cuda_->use_algorithms(choices_);
  }
  void expect_parity(Precision precision) {
    testing::expect_parity(*cuda_, precision, testing::Cases::kAll, "", choices_.get());
  }
  // The library's first proposals, as without it, remembered for the report of a failing case.
  std::shared_ptr<testing::FirstProposal> choices_ = std::make_shared<testing::FirstProposal>();
  std::unique_ptr<Backend> cuda_;
};

TEST_F(Cuda, EveryCaseOfTheTable) { expect_parity(Precision::kFp32); }
TEST_F(Cuda, EveryCaseOfTheTableInBf16) { expect_parity(Precision::kBf16); }
TEST_F(Cuda, EveryCaseOfTheTableInFp16) { expect_parity(Precision::kFp16); }
TEST_F(Cuda, EveryCaseOfTheTableInTf32) { expect_parity(Precision::kTf32); }
TEST_F(Cuda, RealShapes) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    testing::expect_right(*cuda_, testing::real_shapes(), precision, testing::Candidates::kFirst,
                          choices_.get());
  }
}
// Tests each algorithm that timing may pick, since some job gets it. If time is limited by
// TRAINYARD_CANDIDATE_SECONDS, each test reports what it omitted.
class CudaCandidates : public Cuda {};
TEST_F(CudaCandidates, OfRealShapes) {
  testing::expect_right(*cuda_, testing::real_shapes(), Precision::kFp32,
                        testing::Candidates::kAll);
}
TEST_F(CudaCandidates, OfRealShapesInTf32) {
  testing::expect_right(*cuda_, testing::real_shapes(), Precision::kTf32,
                        testing::Candidates::kAll);
}
TEST_F(CudaCandidates, OfRealShapesInBf16) {
  testing::expect_right(*cuda_, testing::real_shapes(), Precision::kBf16,
                        testing::Candidates::kAll);
}
TEST_F(CudaCandidates, OfRealShapesInFp16) {
  testing::expect_right(*cuda_, testing::real_shapes(), Precision::kFp16,
                        testing::Candidates::kAll);
}
TEST_F(CudaCandidates, OfTheTable) {
  testing::expect_parity_of_candidates(*cuda_, Precision::kFp32);
}
TEST_F(CudaCandidates, OfTheTableInTf32) {
  testing::expect_parity_of_candidates(*cuda_, Precision::kTf32);
}
TEST_F(CudaCandidates, OfTheTableInBf16) {
  testing::expect_parity_of_candidates(*cuda_, Precision::kBf16);
}
TEST_F(CudaCandidates, OfTheTableInFp16) {
  testing::expect_parity_of_candidates(*cuda_, Precision::kFp16);
}
TEST_F(Cuda, NanGoesThroughRelu) { testing::expect_nan_through_relu(*cuda_); }
TEST_F(Cuda, RepeatsBitByBit) { testing::expect_repeats(*cuda_); }
TEST_F(Cuda, RepeatsBitByBitInBf16) { testing::expect_repeats(*cuda_, Precision::kBf16); }
TEST_F(Cuda, HasAKernelForEveryOp) { EXPECT_EQ(testing::missing_ops(*cuda_), ""); }

TEST_F(Cuda, ZeroesItsMemoryAndCopiesBothWays) {
  for (const size_t size :
       {size_t{1}, size_t{1000}, size_t{65536}, size_t{9} << 20, size_t{80} << 20}) {
    std::vector<unsigned char> host(size), back(size, 7);
    const auto bytes = static_cast<int64_t>(size);
    void* const device = cuda_->allocate(bytes);
    cuda_->copy_to_host(back.data(), device, bytes);
    EXPECT_TRUE(back == std::vector<unsigned char>(size, 0)) << size;
    for (size_t i = 0; i < size; ++i) host[i] = static_cast<unsigned char>(i * 7 + i / 4096);
    cuda_->copy_to_device(device, host.data(), bytes);
    cuda_->copy_to_host(back.data(), device, bytes);
    EXPECT_TRUE(back == host) << size;
    cuda_->release(device);
  }
}

TEST_F(Cuda, ThrowsBadAllocAndLivesOn) {
  EXPECT_THROW(cuda_->allocate(int64_t{1} << 50), std::bad_alloc);
  cuda_->release(cuda_->allocate(64));
  cuda_->synchronize();
}

}  // namespace
}  // namespace trainyard
