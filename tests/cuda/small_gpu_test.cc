// Catches: a GPU of 2 GB without bfloat16 on which the small models that it could train do not fit,
// or for which the backend asks the libraries for what such a GPU does not have. The emulated
// libraries refuse bfloat16 and TF32 below compute capability 8.0, and the allocator refuses more
// than the device's memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/calibration/drawn_values.h"
#include "src/planning/programs.h"
#include "src/runtime/cuda/backend.h"
#include "src/train/session.h"
#include "tests/bench/step_count.h"

namespace trainyard {
namespace {

using bench::BenchModel;
using bench::StepCase;
using testing::WorkKind;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kGpuBytes = 2 * kGiB;
/// The daemon reserves a quarter of such a GPU (CheckedInventory), so a job's plan may use the
/// rest.
constexpr int64_t kPlanBytes = kGpuBytes / 4 * 3;

class SmallGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::set_device_memory(kGpuBytes);
    testing::set_device_capability(7, 5);
  }
  void TearDown() override {
    testing::set_counting(false);
    testing::set_device_memory(80 * kGiB);
    testing::set_device_capability(9, 0);
  }
};

/// Returns the device memory of a job of full size, with its kernels' workspace and with staging.
int64_t bytes_of(const StepCase& step) {
  testing::set_counting(true);
  const int64_t before = testing::device_bytes();
  cuda::CudaBackend gpu(0);
  const Session session(bench::compile_case(step), gpu);
  const float one = 1;
  void* const there = gpu.allocate(sizeof one);
  gpu.copy_to_device(there, &one, sizeof one);
  const int64_t bytes = testing::device_bytes() - before;
  gpu.release(there);
  return bytes;
}

TEST_F(SmallGpu, JobsOfFullSizeFit) {
  for (const Precision precision : {Precision::kTf32, Precision::kFp16}) {
    SCOPED_TRACE(name_of(precision));
    EXPECT_LE(bytes_of({"gpt2_mini", 16, precision}), kPlanBytes);
    EXPECT_LE(bytes_of({"resnet18", 128, precision}), kPlanBytes);
  }
}

struct Trained {
  std::vector<float> losses;
  bool changed = false;  // whether the weights changed
};
/// Trains `steps` steps on the same rows.
Trained train(const BenchModel& m, Precision precision, int64_t batch, int64_t steps) {
  Recipe recipe;
  recipe.steps = steps;
  recipe.batch_size = batch;
  recipe.precision = precision;
  recipe.optimizer = m.optimizer;
  recipe.optimizer.learning_rate = 1e-3;
  cuda::CudaBackend gpu(0);
  RunPrograms programs = compile_step(m.model, recipe, m.interface, {}, gpu.traits()).value();
  const Graph& graph = programs.train.program.graph;
  const auto input = draw_values(graph.tensor(programs.train.input), 1, m.interface.vocabulary, 0);
  const auto target = draw_values(graph.tensor(programs.train.target), 1, m.interface.outputs, 1);
  Session session(std::move(programs), gpu);
  session.initialize(1);
  const auto weights = [&] {
    const Snapshot snapshot = session.snapshot();
    std::vector<std::byte> bytes;
    for (const TensorView& t : snapshot.weights) {
      bytes.insert(bytes.end(), t.bytes.begin(), t.bytes.end());
    }
    return bytes;
  };
  const std::vector<std::byte> initial = weights();
  Trained trained;
  for (int64_t step = 0; step < steps; ++step) {
    trained.losses.push_back(session.run_step({input, target, step, 1e-3f}).loss);
  }
  trained.changed = weights() != initial;
  return trained;
}

TEST_F(SmallGpu, AGptOfTenMillionParametersTrains) {
  BenchModel m = bench::bench_model("gpt2_mini");
  m.interface.input = Shape({8});
  const Trained trained = train(m, Precision::kTf32, 1, 2);
  EXPECT_NEAR(trained.losses[0], std::log(65.0f), 0.5f);
  EXPECT_LT(trained.losses[1], trained.losses[0]);
}

// A step of images of 32 x 32 would take the emulator more than a minute.
TEST_F(SmallGpu, AResnet18Trains) {
  BenchModel m = bench::bench_model("resnet18");
  m.interface.input = Shape({3, 8, 8});
  const Trained trained = train(m, Precision::kTf32, 2, 1);
  EXPECT_TRUE(std::isfinite(trained.losses[0]));
  EXPECT_TRUE(trained.changed);
}

TEST_F(SmallGpu, SixteenBitsAreFp16) {
  const BenchModel m = bench::bench_model("lenet5");
  // The first steps may overflow and are skipped; the loss is that of the same weights then.
  const Trained trained = train(m, Precision::kFp16, 8, 12);
  EXPECT_LT(trained.losses.back(), trained.losses.front());

  const cuda::CudaBackend gpu(0);
  EXPECT_FALSE(gpu.traits().has_bf16);
  const auto refused =
      compile_inference(m.model, m.interface, 1, nullptr, Precision::kBf16, {}, gpu.traits());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "the model computes in bf16, which needs a GPU of compute capability 8.0 or later, "
            "and this one is older; use the CPU or another GPU");
}

// A GPU of 2 GB that has bfloat16, such as a MIG instance, computes attention and head in more and
// smaller parts. In each of the 12 layers, the gradient's ds takes 402 MB.
TEST_F(SmallGpu, LargeWorkspacesAreDividedIntoMoreParts) {
  testing::set_device_capability(9, 0);
  const auto works = [](int64_t memory_bytes) {
    testing::set_device_memory(memory_bytes);
    return bench::count_step(StepCase{"gpt2_small:1024", 16, Precision::kBf16}).of_nodes();
  };
  const testing::WorkCounts large = works(80 * kGiB), small = works(kGpuBytes);
  EXPECT_EQ(large.of(WorkKind::kDnn), 12 * (1 + 1));
  EXPECT_EQ(small.of(WorkKind::kDnn), 12 * (1 + 8)) << "two sequences at a time";
  // 16,384 rows of scores in 4 chunks, or in 64. Each needs four products: scores, dx, dw, and the
  // last rows of dw, whose number is not a multiple of 64.
  EXPECT_EQ(small.of(WorkKind::kProduct) - large.of(WorkKind::kProduct), 4 * (64 - 4));
}

// A padded head has another product for the last rows of dw, and copies its weights in each step.
// Without TF32 a tf32 job computes what an fp32 job computes, which gains nothing by padding.
TEST_F(SmallGpu, TheHeadIsPaddedOnlyWhereTf32Exists) {
  const auto products = [](Precision precision) {
    return bench::count_step(StepCase{"gpt2_small:1024", 2, precision})
        .of_nodes()
        .of(WorkKind::kProduct);
  };
  EXPECT_EQ(products(Precision::kTf32), products(Precision::kFp32));
  testing::set_device_capability(9, 0);
  EXPECT_GT(products(Precision::kTf32), products(Precision::kFp32));
}

}  // namespace
}  // namespace trainyard
