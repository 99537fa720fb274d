// Tests of the memory plan: exact text for two small jobs, and invariants over graphs of random
// structure.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/autodiff/differentiate.h"
#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/moving_average_update.h"
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

constexpr uint64_t kRandomPlans = 300;

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

// verify() walks through the program and records which tensor owns which bytes: it fails for a
// buffer that is reused before its last reader, or a node that runs before its producer.
TEST(PlanRandom, NoLiveBuffersOverlap) {
  for (uint64_t seed = 0; seed < kRandomPlans; ++seed) {
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

// A verify() that checks nothing would let the tests above pass.
TEST(PlanVerify, CatchesABufferThatIsFreedTooEarly) {
  const Program good = training_program(mlp(), {});
  const auto find = [&](const char* name) {
    return static_cast<size_t>(good.graph.find_tensor(name).value());
  };
  Program bad = good;  // fc2 overwrites relu1, which backward reads
  bad.placements[find("fc2")].offset_bytes = bad.placements[find("relu1")].offset_bytes;
  EXPECT_THROW(verify(bad), InvariantError);
  bad = good;  // two parameters share bytes
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

// Tests each check of verify() separately, since another check finds most faults, too.
TEST(PlanVerify, NamesTheProblem) {
  const Program good = training_program(mlp(), {});
  const auto at = [&](Program& p, const char* name) -> Placement& {
    return p.placements[static_cast<size_t>(p.graph.find_tensor(name).value())];
  };
  const auto expect_fault = [](const Program& p, const std::string& what) {
    try {
      verify(p);
      ADD_FAILURE() << "no fault, expected: " << what;
    } catch (const InvariantError& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
    }
  };
  Program bad = good;
  at(bad, "fc1").size_bytes = 0;
  expect_fault(bad, "fc1 has too little memory");
  bad = good;
  bad.transient_bytes -= kHostAlignment;
  expect_fault(bad, "ends after its segment");
  bad = good;
  bad.memory.activation_bytes += kHostAlignment;
  expect_fault(bad, "the breakdown does not sum to the arena");
  bad = good;
  std::swap(bad.order[0], bad.order[1]);
  expect_fault(bad, "relu1 runs before the producer of fc1");
  bad = good;
  bad.order[1] = bad.order[0];
  expect_fault(bad, "fc1 runs twice");
  bad = good;  // no node reads the loss, but the training loop does
  at(bad, "fc2/grad.2").offset_bytes = at(bad, "loss").offset_bytes;
  expect_fault(bad, "loss does not outlive the run");
}

TEST(PlanVerify, CatchesABufferOverwrittenWhileItIsRead) {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.input("x", {4, 4});
  const TensorId a = b.one("relu", "Relu", {}, {x});
  const TensorId y =
      b.one("fc", "Gemm", {{"transB", int64_t{1}}}, {a, b.parameter("fc.weight", {4, 4})});
  Program p = compile(b.finish(y).graph, {});
  ASSERT_NO_THROW(verify(p));
  p.placements[static_cast<size_t>(y)] = p.placements[static_cast<size_t>(a)];
  EXPECT_THROW(verify(p), InvariantError) << "a product cannot be computed in place";
}

// Moving averages read parameters before their update; only the execution order ensures that.
TEST(PlanVerify, CatchesAReadAfterTheUpdate) {
  CaseGraph c = mlp();
  const auto gradients = differentiate(c.graph, c.loss);
  Graph& g = c.graph;
  const TensorId weight = g.find_tensor("fc1.weight").value();
  const TensorId step = g.add_tensor(
      {"average_step", {{1}, DType::kI64}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
  const TensorId mean = g.add_tensor({"fc1.weight.mean",
                                      g.tensor(weight).type,
                                      Role::kOptimizerState,
                                      Layout::kRowMajor,
                                      kNoNode,
                                      {}});
  g.add_node("mean/update", *moving_average_update_op(), {{"decay", 0.9}}, {mean, weight, step}, {},
             Phase::kUpdate)
      .value();
  append_optimizer(g, {}, gradients, kNoTensor);
  Program p = compile(std::move(g), {});
  ASSERT_NO_THROW(verify(p));
  const auto place_of = [&](std::string_view name) {
    return std::find_if(p.order.begin(), p.order.end(),
                        [&](NodeId k) { return p.graph.node(k).name == name; });
  };
  const auto read = place_of("mean/update"), update = place_of("fc1.weight/update");
  ASSERT_LT(read, update);
  std::rotate(read, read + 1, update + 1);  // moves the average after the update
  EXPECT_THROW(verify(p), InvariantError);
}

std::vector<std::string> names_aside(const Program& p) {
  std::vector<std::string> names;
  for (size_t step = 0; step < p.lanes.size(); ++step) {
    if (p.lanes[step].lane == Lane::kSide) names.push_back(p.graph.node(p.order[step]).name);
  }
  return names;
}

/// The large layer is updated as soon as its gradient exists, the others together at the end.
CaseGraph three_layers() {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  TensorId x = b.input("x", {8, 300});
  for (const auto& [name, inputs, outputs] :
       {std::tuple("a", 300, 310), std::tuple("b", 310, 320), std::tuple("c", 320, 5)}) {
    const std::string layer = name;
    x = b.one(
        layer, "Gemm", trans_b,
        {x, b.parameter(layer + ".w", {outputs, inputs}), b.parameter(layer + ".b", {outputs})});
    x = b.one(layer + ".tanh", "Tanh", {}, {x});
  }
  return b.finish(x);
}

TEST(PlanLanes, GradientsOfWeightsAndUpdatesBeforeTheLastActivationAreAside) {
  CaseGraph c = three_layers();
  const auto gradients = differentiate(c.graph, c.loss);
  append_optimizer(c.graph, {.type = "sgd"}, gradients, kNoTensor);
  const Program p = compile(c.graph, {.two_lanes = true});
  verify(p);
  // c.w is small. The gradients of the first layer follow the last gradient of an activation.
  EXPECT_EQ(names_aside(p), (std::vector<std::string>{"loss/seed", "c/grad/weights",
                                                      "b/grad/weights", "b.w/update"}));
  std::vector<std::string> joins;
  for (size_t step = 0; step < p.lanes.size(); ++step) {
    if (p.lanes[step].joins) joins.push_back(p.graph.node(p.order[step]).name);
  }
  EXPECT_EQ(joins, (std::vector<std::string>{"loss/grad", "c.b/update"})) << p.dump_program();
  EXPECT_TRUE(compile(c.graph, {}).lanes.empty());
}

TEST(PlanLanes, MemoryOfTheSideLaneIsNotUsedAgainBeforeAJoin) {
  int64_t with_lanes = 0, caught = 0;
  for (uint64_t seed = 0; seed < kRandomPlans; ++seed) {
    SCOPED_TRACE(seed);
    const CaseGraph c = random_training_graph(seed, DType::kF32);
    const Program two = compile(c.graph, {.two_lanes = true});
    EXPECT_NO_THROW(verify(two));
    if (two.lanes.empty()) continue;
    ++with_lanes;
    Program one = compile(two.graph, {.passes = {false, false, false, false}});
    ASSERT_NO_THROW(verify(one));
    one.lanes = assign_lanes(one.graph, one.order);
    try {
      verify(one);
    } catch (const InvariantError& e) {
      ++caught;
      EXPECT_NE(std::string(e.what()).find("while the side lane"), std::string::npos) << e.what();
    }
  }
  EXPECT_GT(with_lanes, kRandomPlans / 2);
  EXPECT_GT(caught, with_lanes / 4) << "one lane's memory is too short for two";
}

TEST(PlanLanes, VerifyCatchesAMissingJoin) {
  CaseGraph c = three_layers();
  const auto gradients = differentiate(c.graph, c.loss);
  append_optimizer(c.graph, {.type = "sgd"}, gradients, kNoTensor);
  Program p = compile(c.graph, {.two_lanes = true});
  for (LaneStep& step : p.lanes) step.joins = false;
  EXPECT_THROW(verify(p), InvariantError);
}

TEST(PlanLanes, ALongStepHasOne) {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  TensorId x = b.one("a", "Gemm", trans_b, {b.input("x", {2, 3}), b.parameter("w", {3, 3})});
  for (int k = 0; k < 130; ++k) x = b.one("tanh" + std::to_string(k), "Tanh", {}, {x});
  CaseGraph c = b.finish(b.one("b", "Gemm", trans_b, {x, b.parameter("v", {3, 3})}));
  (void)differentiate(c.graph, c.loss);
  const Program p = compile(c.graph, {.two_lanes = true});
  EXPECT_TRUE(p.lanes.empty());
  EXPECT_EQ(p.order, compile(c.graph, {}).order) << "and its gradients are not split";
}

// A GPU's libraries need a larger alignment than a cache line; the plan must include it.
TEST(PlanAlignment, EveryOffsetIsAlignedForTheDevice) {
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

TEST(PlanVerify, CatchesAnUnalignedOffset) {
  Program program = training_program(mlp(), {});
  ASSERT_NO_THROW(verify(program));
  program.alignment = 256;
  EXPECT_THROW(verify(program), InvariantError);
}

/// Returns two layers of `width` units and a small layer, with biases.
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

TEST(PlanSchedule, UpdatesALargeParameterOnceItsGradientIsComputed) {
  const Program p = training_program(three_layers(300), {});  // fc2.weight has 360 kB
  EXPECT_EQ(step_of(p, "fc2.weight/update"), step_of(p, "fc2/grad") + 1);
  EXPECT_LT(step_of(p, "fc2.weight/update"), step_of(p, "fc1/grad"));
}

// A backend joins consecutive updates of one kind into one launch.
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
  // Muon updates hidden layers' matrices, AdamW all other parameters.
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

// 40 layers whose gradients of 160 kB wait for their updates: never more than kDeferredMax bytes.
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
  EXPECT_LE(most, kDeferredMax);
}

TEST(PlanMemory, ElementwiseOpsRunInPlaceIfTheInputIsNotReadAgain) {
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

// A reshape shares its operand's memory, however long both names are read; and no op may overwrite
// the memory under one name while the other is still read.
TEST(PlanMemory, AReshapeSharesTheMemoryOfItsInput) {
  CaseBuilder b(DType::kF32);
  const TensorId p = b.parameter("p", {4, 6});
  const TensorId x = b.one("x", "Tanh", {}, {p});
  const TensorId rows = b.one("rows", "Reshape", {{"shape", std::vector<int64_t>{2, 12}}}, {x});
  const TensorId y = b.one("y", "Relu", {}, {rows});  // may not run in place, since z reads x
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
  Program bad = program;  // y overwrites x, which z still reads
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

/// Places by best fit as placement.h defines it, by comparing all pairs of buffers.
PlacedBuffers place_by_pairs(const std::vector<Buffer>& buffers) {
  std::vector<size_t> by_size(buffers.size()), by_offset;
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::ranges::stable_sort(by_size, std::greater(),
                           [&](size_t b) { return buffers[b].size_bytes; });
  PlacedBuffers placed{std::vector<int64_t>(buffers.size()), 0};
  for (const size_t b : by_size) {
    int64_t offset = -1, smallest = std::numeric_limits<int64_t>::max(), free_from = 0;
    for (const size_t other : by_offset) {
      if (buffers[other].last < buffers[b].first || buffers[b].last < buffers[other].first)
        continue;
      const int64_t gap = placed.offsets[other] - free_from;
      if (gap >= buffers[b].size_bytes && gap < smallest) {
        smallest = gap;
        offset = free_from;
      }
      free_from = std::max(free_from, placed.offsets[other] + buffers[other].size_bytes);
    }
    placed.offsets[b] = offset >= 0 ? offset : free_from;
    placed.size_bytes = std::max(placed.size_bytes, placed.offsets[b] + buffers[b].size_bytes);
    by_offset.push_back(b);
    std::ranges::sort(by_offset, {}, [&](size_t x) { return placed.offsets[x]; });
  }
  return placed;
}

// This test catches a free byte range that is lost or invented, for arbitrary lifetimes.
TEST(PlacementBestFit, MatchesTheSearchOverAllPairs) {
  for (uint32_t round = 0; round < 200; ++round) {
    std::mt19937 random(round);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
    };
    const int64_t steps = 1 + below(60);
    std::vector<Buffer> buffers;
    for (int64_t i = 1 + below(80); i > 0; --i) {
      const int64_t first = below(steps);
      const int64_t longest = below(3) == 0 ? steps - first : std::min<int64_t>(4, steps - first);
      buffers.push_back({{0}, 64 * (1 + below(6)), first, first + below(longest)});
    }
    const PlacedBuffers placed = place_buffers(buffers), expected = place_by_pairs(buffers);
    EXPECT_EQ(placed.offsets, expected.offsets) << "round " << round;
    EXPECT_EQ(placed.size_bytes, expected.size_bytes) << "round " << round;
  }
}

// BatchNormalization with ReLU computes its mask from its own input. So if the pool keeps its
// winners, nothing else reads the pool's input, as in ResNet's stem.
TEST(PlanMemory, InputsOfPoolsAreFreedIfIndicesAreKept) {
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
  EXPECT_LE(planned(true), planned(false) - kPooled / 2);  // with it freed, the peak is elsewhere
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
