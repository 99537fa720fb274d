// The plan: exact text for two small jobs, and invariants over graphs of random structure.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/autodiff/differentiate.h"
#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/optim/optimizer.h"
#include "src/plan/liveness.h"
#include "src/plan/placement.h"
#include "src/plan/program.h"
#include "src/plan/schedule.h"
#include "tests/support/golden.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;
using testing::random_training_graph;

constexpr uint64_t kRandomGraphs = 300;

CaseGraph mlp() {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  const TensorId x = b.input("x", {8, 20});
  const TensorId h = b.one("fc1", "Gemm", trans_b,
                           {x, b.parameter("fc1.weight", {30, 20}), b.parameter("fc1.bias", {30})});
  const TensorId a = b.one("relu1", "Relu", {}, {h});
  const TensorId z = b.one("fc2", "Gemm", trans_b,
                           {a, b.parameter("fc2.weight", {4, 30}), b.parameter("fc2.bias", {4})});
  return b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, b.labels("labels", 8, 4)}, 2)[0]);
}

CaseGraph cnn() {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.input("x", {2, 3, 8, 8});
  const TensorId h = b.one("conv1", "Conv", {}, {x, b.parameter("conv1.weight", {4, 3, 3, 3})});
  const TensorId a = b.one("relu1", "Relu", {}, {h});
  const TensorId p = b.node("pool1", "MaxPool",
                            {{"kernel_shape", std::vector<int64_t>{2, 2}},
                             {"strides", std::vector<int64_t>{2, 2}},
                             {"keep_winner", int64_t{1}}},
                            {a}, 2)[0];
  const TensorId f = b.one("flatten", "Flatten", {}, {p});
  const TensorId z =
      b.one("fc1", "Gemm", {{"transB", int64_t{1}}}, {f, b.parameter("fc1.weight", {5, 36})});
  return b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, b.labels("labels", 2, 5)}, 2)[0]);
}

Program training_program(CaseGraph c, const OptimizerSpec& optimizer) {
  const auto gradients = differentiate(c.graph, c.loss);
  append_optimizer(c.graph, optimizer, gradients, kNoTensor);
  return compile(std::move(c.graph), {});
}

std::string dump(const Program& p) {
  return "== graph\n" + p.graph.dump() + "== program\n" + p.dump_program() + "== memory\n" +
         p.dump_memory();
}

TEST(PlanGolden, MlpWithAdam) {
  const Program p = training_program(mlp(), {.type = "adam"});
  verify(p);
  testing::expect_golden("plan_mlp_adam.txt", dump(p));
}

TEST(PlanGolden, CnnWithMomentum) {
  const Program p = training_program(cnn(), {.type = "sgd", .momentum = 0.9});
  verify(p);
  testing::expect_golden("plan_cnn_sgd.txt", dump(p));
}

// verify() walks the program with a map of who owns which bytes: a buffer that is given away before
// its last reader, or a step before its producer, faults here.
TEST(PlanRandom, NoLiveBuffersOverlap) {
  for (uint64_t seed = 0; seed < kRandomGraphs; ++seed) {
    SCOPED_TRACE(seed);
    for (const bool channels_last : {true, false}) {
      const Program p =
          compile(random_training_graph(seed, DType::kF32).graph, {.channels_last = channels_last});
      ASSERT_NO_THROW(verify(p));
    }
  }
}

TEST(PlanRandom, ReusedMemoryAndLayoutChangeNoBit) {
  const auto backend = make_reference_backend();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const CaseGraph c = random_training_graph(seed, DType::kF32);
    const auto kept = testing::run_case(c, *backend, {.channels_last = false, .keep_all = true});
    const auto reused = testing::run_case(c, *backend, {.channels_last = false, .keep_all = false});
    EXPECT_LE(reused.planned_bytes, kept.planned_bytes);
    EXPECT_EQ(reused.planned_bytes, reused.used_bytes);
    EXPECT_EQ(kept.planned_bytes, kept.used_bytes);
    for (const auto& [name, values] : reused.values)
      EXPECT_EQ(values, kept.values.at(name)) << name;
  }
}

// Without this, a verify() that checks nothing would make the tests above pass.
TEST(PlanVerify, CatchesABufferThatIsGivenAwayTooEarly) {
  const Program good = training_program(mlp(), {});
  const auto find = [&](const char* name) {
    return static_cast<size_t>(good.graph.find_tensor(name).value());
  };
  Program bad = good;  // fc2 computes onto relu1, which backward reads
  bad.placements[find("fc2")].offset_bytes = bad.placements[find("relu1")].offset_bytes;
  EXPECT_THROW(verify(bad), InvariantError);
  bad = good;  // two parameters in one place
  bad.placements[find("fc2.bias")].offset_bytes = bad.placements[find("fc1.bias")].offset_bytes;
  bad.order = good.order;
  EXPECT_THROW(verify(bad), InvariantError);
  bad = good;
  std::swap(bad.order[1], bad.order[2]);
  EXPECT_THROW(verify(bad), InvariantError);
  bad = good;
  bad.transient_bytes -= kHostAlignment;
  EXPECT_THROW(verify(bad), InvariantError);
}

// A GPU's libraries ask for more than a cache line: the plan knows, so that what is planned is what
// is used.
TEST(PlanAlignment, EveryPlaceIsAMultipleOfTheDevices) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const CaseGraph c = random_training_graph(seed, DType::kF32);
    const Program host = compile(c.graph, {}), gpu = compile(c.graph, {.alignment = 256});
    ASSERT_NO_THROW(verify(gpu));
    for (const Placement& place : gpu.placements) {
      EXPECT_EQ(place.offset_bytes % 256, 0);
      EXPECT_EQ(place.size_bytes % 256, 0);
    }
    EXPECT_EQ(gpu.order, host.order) << "the same steps on every device";
  }
}

TEST(PlanAlignment, AnotherProgramOfTheJobFollowsTheFirst) {
  const PersistentLayout layout = persistent_layout(compile(mlp().graph, {.alignment = 256}));
  const Program second = compile(mlp().graph, {.persistent = &layout});
  EXPECT_EQ(second.alignment, 256);
  EXPECT_EQ(persistent_layout(second).by_name.at("fc2.bias").offset_bytes,
            layout.by_name.at("fc2.bias").offset_bytes);
}

TEST(PlanVerify, CatchesAPlaceThatIsNotAligned) {
  Program program = training_program(mlp(), {});
  ASSERT_NO_THROW(verify(program));
  program.alignment = 256;
  EXPECT_THROW(verify(program), InvariantError);
}

/// Two layers of `width` units and a small one, with biases.
CaseGraph three_layers(int64_t width) {
  CaseBuilder b(DType::kF32);
  TensorId h = b.input("x", {2, width});
  for (const auto& [name, outputs] :
       {std::pair("fc1", width), std::pair("fc2", width), std::pair("fc3", int64_t{4})}) {
    h = b.one(name, "Gemm", {{"transB", int64_t{1}}},
              {h, b.parameter(name + std::string(".weight"), {outputs, width}),
               b.parameter(name + std::string(".bias"), {outputs})});
  }
  return b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {h, b.labels("labels", 2, 4)}, 2)[0]);
}

size_t step_of(const Program& p, std::string_view name) {
  for (size_t s = 0; s < p.order.size(); ++s) {
    if (p.graph.node(p.order[s]).name == name) return s;
  }
  ADD_FAILURE() << name;
  return p.order.size();
}

TEST(PlanSchedule, UpdatesALargeParameterAsSoonAsItsGradientIsThere) {
  const Program p = training_program(three_layers(300), {});  // 360 kB
  EXPECT_EQ(step_of(p, "fc2.weight/update"), step_of(p, "fc2/grad") + 1);
  EXPECT_LT(step_of(p, "fc2.weight/update"), step_of(p, "fc1/grad"));
}

// A backend makes one launch of updates of one kind that follow one another.
TEST(PlanSchedule, UpdatesSmallParametersTogether) {
  const Program p = training_program(three_layers(300), {});
  const size_t last = p.order.size() - 1;
  std::set<size_t> steps;
  for (const char* name :
       {"fc1.bias/update", "fc2.bias/update", "fc3.bias/update", "fc3.weight/update"}) {
    steps.insert(step_of(p, name));
  }
  EXPECT_EQ(steps, (std::set<size_t>{last - 3, last - 2, last - 1, last}));
}

TEST(PlanSchedule, UpdatesOfOneKindFollowOneAnother) {
  // Muon for the matrices, AdamW for what is no matrix of a hidden layer.
  CaseGraph c = three_layers(20);
  const auto gradients = differentiate(c.graph, c.loss);
  std::map<TensorId, ParameterRule> rules;
  for (const auto& [parameter, gradient] : gradients) {
    rules[parameter].hidden_matrix = c.graph.tensor(parameter).type.shape.rank() == 2;
  }
  OptimizerSpec muon;
  muon.type = "muon";
  append_optimizer(c.graph, muon, gradients, kNoTensor, rules);
  const Program p = compile(std::move(c.graph), {});
  size_t changes = 0;
  for (size_t s = p.order.size() - 5; s < p.order.size(); ++s) {
    if (p.graph.node(p.order[s]).op != p.graph.node(p.order[s - 1]).op) ++changes;
  }
  EXPECT_EQ(changes, 1U);
}

// 40 layers whose weights of 160 kB wait: never more than kHeldMax of them.
TEST(PlanSchedule, GradientsThatWaitAreBounded) {
  CaseBuilder b(DType::kF32);
  TensorId h = b.input("x", {2, 200});
  for (int layer = 0; layer < 40; ++layer) {
    const std::string name = "fc" + std::to_string(layer);
    h = b.one(name, "Gemm", {{"transB", int64_t{1}}},
              {h, b.parameter(name + ".weight", {200, 200})});
  }
  const CaseGraph c = b.finish(h);
  const Program p = training_program(c, {});
  verify(p);
  int64_t waiting = 0, most = 0, updates = 0, runs = 0;
  for (size_t s = 0; s < p.order.size(); ++s) {
    const Node& node = p.graph.node(p.order[s]);
    if (node.phase == Phase::kUpdate) {
      waiting -= 200 * 200 * 4;
      ++updates;
      if (p.graph.node(p.order[s - 1]).phase != Phase::kUpdate) ++runs;
    } else if (node.op->type() == "GemmGrad") {
      waiting += 200 * 200 * 4;
      most = std::max(most, waiting);
    }
  }
  EXPECT_EQ(updates, 40);
  EXPECT_EQ(runs, 2);
  EXPECT_LE(most, kHeldMax);
}

TEST(PlanMemory, ElementwiseOpsRunInPlaceWhereNobodyReadsTheInputAgain) {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.one("x", "Gemm", {{"transB", int64_t{1}}},
                           {b.input("in", {4, 4}), b.parameter("w", {4, 4})});
  const TensorId y = b.one("y", "Relu", {}, {x});
  const TensorId z = b.one("z", "Tanh", {}, {y});
  CaseGraph c = b.finish(z);
  const Program p = compile(std::move(c.graph), {});
  const auto offset = [&](TensorId id) {
    return p.placements[static_cast<size_t>(id)].offset_bytes;
  };
  EXPECT_EQ(offset(x), offset(y));
  EXPECT_EQ(offset(y), offset(z));
}

// A reshape has no memory of its own, however long both names are read; and nobody writes over one
// name while the other is still read.
TEST(PlanMemory, AReshapeIsASecondNameOfTheSameMemory) {
  CaseBuilder b(DType::kF32);
  const TensorId p = b.parameter("p", {4, 6});
  const TensorId x = b.one("x", "Tanh", {}, {p});
  const TensorId rows = b.one("rows", "Reshape", {{"shape", std::vector<int64_t>{2, 12}}}, {x});
  const TensorId y = b.one("y", "Relu", {}, {rows});  // may not run in place
  const TensorId back = b.one("back", "Reshape", {{"shape", std::vector<int64_t>{4, 6}}}, {y});
  const TensorId z = b.one("z", "Add", {}, {x, back});
  const CaseGraph c = b.finish(z);
  const Program program = compile(c.graph, {});
  verify(program);
  const auto offset = [&](TensorId id) {
    return program.placements[static_cast<size_t>(id)].offset_bytes;
  };
  EXPECT_EQ(offset(x), offset(rows));
  EXPECT_NE(offset(y), offset(x));
  EXPECT_EQ(offset(y), offset(back));
  Program bad = program;  // y onto what z still reads as x
  bad.placements[static_cast<size_t>(y)] = bad.placements[static_cast<size_t>(back)] =
      bad.placements[static_cast<size_t>(x)];
  EXPECT_THROW(verify(bad), InvariantError);
  const auto backend = make_reference_backend();
  const auto kept = testing::run_case(c, *backend, {.keep_all = true});
  const auto reused = testing::run_case(c, *backend, {.keep_all = false});
  for (const auto& [name, values] : reused.values) EXPECT_EQ(values, kept.values.at(name)) << name;
}

TEST(PlanPersistent, LaterProgramsOfAJobAgreeWithTheFirst) {
  const Program train = training_program(mlp(), {.type = "adam"});
  const PersistentLayout layout = persistent_layout(train);
  const Program evaluate = compile(mlp().graph, {.persistent = &layout});
  verify(evaluate);
  EXPECT_EQ(evaluate.persistent_bytes, train.persistent_bytes);
  for (size_t i = 0; i < evaluate.placements.size(); ++i) {
    if (evaluate.placements[i].segment != Segment::kPersistent) continue;
    const std::string& name = evaluate.graph.tensors()[i].name;
    EXPECT_EQ(evaluate.placements[i].offset_bytes, layout.by_name.at(name).offset_bytes) << name;
  }
}

TEST(PlanPersistent, FaultsWhenATensorHasAnotherSize) {
  const PersistentLayout layout = persistent_layout(compile(mlp().graph, {}));
  CaseBuilder b(DType::kF32);
  CaseGraph c = b.finish(b.one("y", "Relu", {}, {b.parameter("fc1.weight", {2, 2})}));
  EXPECT_THROW(compile(std::move(c.graph), {.persistent = &layout}), InvariantError);
}

TEST(PlacementBestFit, FillsTheSmallestGapThatFits) {
  // Step:      0  1  2
  // a (256)    x  x  x
  // b (192)    x
  // c (128)       x  x      shares b's place
  // d (64)     x  x  x      on top of the larger of b and c
  const std::vector<Buffer> buffers = {
      {{0}, 256, 0, 2}, {{1}, 192, 0, 0}, {{2}, 128, 1, 2}, {{3}, 64, 0, 2}};
  const PlacedBuffers placed = place_buffers(buffers);
  EXPECT_EQ(placed.offsets, (std::vector<int64_t>{0, 256, 256, 448}));
  EXPECT_EQ(placed.size_bytes, 512);
}

// Behind batch normalisation with ReLU, which finds its mask in its own input, nobody else needs
// what is pooled: a stem as ResNet's.
TEST(PlanMemory, WhatIsPooledIsFreeWhereWinnersAreKept) {
  const auto planned = [](bool keeps) {
    CaseBuilder b(DType::kF32);
    const TensorId h =
        b.one("h", "Conv", {}, {b.input("x", {4, 3, 32, 32}), b.parameter("w1", {8, 3, 1, 1})});
    const TensorId n =
        b.node("n", "BatchNormalization", {{"training_mode", int64_t{1}}},
               {h, b.parameter("scale", {8}), b.parameter("b", {8}),
                b.state("running_mean", {8}, 0.25), b.state("running_var", {8}, 0.75)},
               3)[0];
    Attributes window{{"kernel_shape", std::vector<int64_t>{2, 2}},
                      {"strides", std::vector<int64_t>{2, 2}}};
    if (keeps) window.set("keep_winner", int64_t{1});
    const TensorId y =
        b.node("y", "MaxPool", window, {b.one("r", "Relu", {}, {n})}, keeps ? 2 : 1)[0];
    std::map<TensorId, TensorId> gradients;
    const CaseGraph c = testing::with_gradients(
        b.finish(b.one("z", "Conv", {}, {y, b.parameter("w2", {4, 8, 1, 1})})), &gradients);
    return testing::run_case(c, *make_cpu_backend(1), {.keep_all = false}).planned_bytes;
  };
  constexpr int64_t kPooled = 4 * 8 * 32 * 32 * 4;
  EXPECT_LE(planned(true), planned(false) - kPooled / 2);  // then something else is the most
}

TEST(PlanCost, CountsAMultiplyAddAsTwo) {
  const Program p = compile(mlp().graph, {});
  const int64_t fc1 = 2 * 8 * 20 * 30 + 8 * 30;
  const int64_t fc2 = 2 * 8 * 30 * 4 + 8 * 4;
  const int64_t relu = 8 * 30;
  const int64_t loss = 15 * 8 * 4;
  EXPECT_EQ(p.flops, fc1 + fc2 + relu + loss);
  EXPECT_GT(p.bytes, 0);
}

}  // namespace
}  // namespace trainyard
