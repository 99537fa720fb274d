// Catches: a step in two lanes (src/plan/lanes.h) that gives other bits than in one, in any order
// that its recording allows: a dependency that the recording lacks, or memory that is used again
// while the side lane needs it. The emulator runs the branches of a recording in the worst orders
// (ForkOrder, fake_cuda.h). Also: a recording in two lanes that is kept although it takes longer.
#include <gtest/gtest.h>

#include <string>

#include "src/autodiff/differentiate.h"
#include "src/optim/optimizer.h"
#include "src/passes/split_gradients.h"
#include "src/runtime/cuda/backend.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;
using testing::CaseResult;
using testing::ForkOrder;

constexpr uint64_t kGraphs = 40;
// The first run records nothing, the second replays one lane, the third two.
constexpr int kUntilTwoLanes = 3;

constexpr ForkOrder kOrders[] = {ForkOrder::kLatest, ForkOrder::kSubmitted, ForkOrder::kRandom};

class Lanes : public ::testing::Test {
 protected:
  ~Lanes() override { testing::set_fork_order(ForkOrder::kByTurns); }
  cuda::CudaBackend gpu_{0};
};

TEST_F(Lanes, GiveTheBitsOfOneLaneInEveryOrder) {
  int64_t with_lanes = 0;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (uint64_t seed = 0; seed < kGraphs; ++seed) {
      SCOPED_TRACE(std::string(name_of(precision)) + " " + std::to_string(seed));
      const CaseGraph c = testing::random_training_graph(seed, DType::kF32);
      testing::RunOptions options{
          .keep_all = false, .runs = kUntilTwoLanes, .precision = precision};
      const CaseResult one = testing::run_case(c, gpu_, options);
      options.two_lanes = true;
      for (const ForkOrder order : kOrders) {
        testing::set_fork_order(order);
        const int64_t before = testing::branched_replays();
        const CaseResult two = testing::run_case(c, gpu_, options);
        const bool has_lanes = !two.program.lanes.empty();
        EXPECT_EQ(testing::branched_replays() - before, has_lanes ? 1 : 0);
        with_lanes += has_lanes ? 1 : 0;
        EXPECT_EQ(two.planned_bytes, two.used_bytes);
        for (const auto& [name, values] : one.values) EXPECT_EQ(two.values.at(name), values);
      }
    }
  }
  EXPECT_GT(with_lanes, 100) << "the graphs have hardly any gradients of weights";
}

/// Three dense layers, which are narrow enough that memory is used again in the backward pass.
CaseGraph dense_layers() {
  CaseBuilder b(DType::kF32);
  TensorId x = b.input("x", {8, 24});
  for (const std::string name : {"a", "b", "c", "d"}) {
    x = b.one(name, "Gemm", {{"transB", int64_t{1}}},
              {x, b.parameter(name + ".w", {24, 24}), b.parameter(name + ".b", {24})});
    x = b.one(name + ".tanh", "Tanh", {}, {x});
  }
  CaseGraph c = b.finish(x);
  const auto gradients = differentiate(c.graph, c.loss);
  const UpdateInputs inputs = append_optimizer(c.graph, {.type = "sgd"}, gradients, kNoTensor);
  c.values[inputs.learning_rate] = {0.5};
  split_gradients(c.graph);
  return c;
}

/// The same steps in two lanes, but with the memory of one.
Program with_memory_of_one_lane(const CaseGraph& c, const cuda::CudaBackend& gpu) {
  Program p = compile(c.graph, {.processor = Processor::kGpu, .alignment = gpu.alignment()});
  p.lanes = assign_lanes(p.graph, p.order);
  return p;
}

TEST_F(Lanes, MemoryOfOneLaneIsUsedAgainTooEarly) {
  const CaseGraph c = dense_layers();
  const Program p = with_memory_of_one_lane(c, gpu_);
  ASSERT_FALSE(p.lanes.empty());
  testing::set_fork_order(ForkOrder::kLatest);
  const CaseResult right = testing::run_program(c, p, gpu_, 1);
  const CaseResult wrong = testing::run_program(c, p, gpu_, kUntilTwoLanes);
  EXPECT_NE(wrong.values, right.values) << "the emulator hides memory that is freed too early";
}

TEST_F(Lanes, WithoutAJoinTheMainLaneReadsTooEarly) {
  const CaseGraph c = dense_layers();
  CompileOptions options{
      .processor = Processor::kGpu, .alignment = gpu_.alignment(), .two_lanes = true};
  Program p = compile(c.graph, options);
  ASSERT_FALSE(p.lanes.empty());
  testing::set_fork_order(ForkOrder::kLatest);
  const CaseResult right = testing::run_program(c, p, gpu_, kUntilTwoLanes);
  EXPECT_EQ(right.values, testing::run_program(c, p, gpu_, 1).values);
  for (LaneStep& step : p.lanes) step.joins = false;
  const CaseResult wrong = testing::run_program(c, p, gpu_, kUntilTwoLanes);
  EXPECT_NE(wrong.values, right.values) << "the emulator hides a missing join";
}

// The same steps are replayed in one lane and in two by turns, five times each.
TEST_F(Lanes, TheFasterRecordingIsKept) {
  constexpr int kMeasured = 10;
  const CaseGraph c = dense_layers();
  CompileOptions options{
      .processor = Processor::kGpu, .alignment = gpu_.alignment(), .two_lanes = true};
  const Program p = compile(c.graph, options);
  for (const double cost : {-1000.0, 1000.0}) {
    SCOPED_TRACE(cost);
    testing::set_branches_cost(cost);
    const auto branched_in = [&](int replays) {
      const int64_t before = testing::branched_replays();
      (void)testing::run_program(c, p, gpu_, 1 + replays);
      return testing::branched_replays() - before;
    };
    EXPECT_EQ(branched_in(kMeasured), kMeasured / 2);
    EXPECT_EQ(branched_in(kMeasured + 7), kMeasured / 2 + (cost < 0 ? 7 : 0));
  }
  testing::set_branches_cost(0);
}

}  // namespace
}  // namespace trainyard
