// Catches: updates in one launch that give other bits than the same updates in single launches (a
// table read wrongly, a chunk omitted or done twice, constants of another tensor), and updates that
// are not joined although they could be, or are joined although they must not be. Also copies of
// parameters in 16 bits that differ from a cast.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/math/half.h"
#include "src/graph/op.h"
#include "src/ops/optimizer_update.h"
#include "src/runtime/cuda/backend.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;
using testing::CaseResult;

// One element, a count that is no multiple of 4, exactly a block's chunk, several chunks with a
// remainder.
constexpr int64_t kCounts[] = {1, 33, 64, 4096, 4100, 9001};

struct Kind {
  std::string op;
  /// Appends the update of tensor k.
  std::function<void(CaseBuilder&, size_t k, TensorId learning_rate, TensorId step)> append;
};

std::vector<Kind> kinds() {
  const auto name = [](const char* what, size_t k) { return what + std::to_string(k); };
  // Hyper-parameters differ from tensor to tensor, as they do with parameter groups.
  const auto attributes = [](size_t k, Attributes a) {
    a.set("weight_decay", 0.01 * static_cast<double>(k));
    a.set("rate_factor", 1.0 + static_cast<double>(k));
    return a;
  };
  const auto shape = [](size_t k) { return Shape{kCounts[k]}; };
  const auto with_states = [=](const std::string& op, Attributes a, int states, bool steps) {
    return Kind{
        op, [=](CaseBuilder& b, size_t k, TensorId rate, TensorId step) {
          std::vector<TensorId> inputs = {b.parameter(name("p", k), shape(k)),
                                          b.input(name("g", k), shape(k)), rate};
          if (steps) inputs.push_back(step);
          for (int s = 0; s < states; ++s) {
            inputs.push_back(b.optimizer_state(name("s", k) + "." + std::to_string(s), shape(k)));
          }
          b.node(name("update", k), op, attributes(k, a), inputs, 0, Phase::kUpdate);
        }};
  };
  return {
      with_states("SgdUpdate", {{"momentum", 0.9}, {"nesterov", int64_t{1}}}, 1, false),
      with_states("AdamUpdate", {}, 2, true),
      with_states("AdamWUpdate", {}, 2, true),
      with_states("RmspropUpdate", {{"momentum", 0.9}}, 3, false),
      with_states("LionUpdate", {}, 1, false),
      {"MovingAverageUpdate",
       [=](CaseBuilder& b, size_t k, TensorId, TensorId step) {
         b.node(
             name("update", k), "MovingAverageUpdate", {{"decay", 0.5 + 0.05 * double(k)}},
             {b.optimizer_state(name("m", k), shape(k)), b.parameter(name("p", k), shape(k)), step},
             0, Phase::kUpdate);
       }},
      {"AccumulateGradient",
       [=](CaseBuilder& b, size_t k, TensorId, TensorId step) {
         b.node(
             name("update", k), "AccumulateGradient", {{"share", 1.0 / (2.0 + double(k))}},
             {b.optimizer_state(name("sum", k), shape(k)), b.input(name("g", k), shape(k)), step},
             0, Phase::kUpdate);
       }},
      {"ClipGradient",
       [=](CaseBuilder& b, size_t k, TensorId rate, TensorId) {
         b.node(name("clipped", k), "ClipGradient", {{"bound", 0.05 + 0.01 * double(k)}},
                {b.input(name("g", k), shape(k)), rate}, 1, Phase::kUpdate);
       }},
  };
}

/// A graph with the updates of tensors [first, end).
CaseGraph graph_of(const Kind& kind, size_t first, size_t end) {
  CaseBuilder b(DType::kF32);
  const TensorId rate = b.input_f32("learning_rate", 0.125), step = b.step(3);
  for (size_t k = first; k < end; ++k) kind.append(b, k, rate, step);
  return b.finish_update();
}

/// The number of works that a step of the graph submits to the stream.
int64_t launches(const CaseGraph& c, Backend& cuda, CaseResult* result) {
  const int64_t before = testing::replayed_works();
  testing::RunOptions options;
  options.runs = 2;  // the second run is recorded and replayed
  *result = testing::run_case(c, cuda, options);
  return testing::replayed_works() - before;
}

TEST(EmulatedUpdates, ManyInOneLaunchGiveTheBitsOfSingleOnes) {
  cuda::CudaBackend cuda(0);
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.op);
    CaseResult together;
    EXPECT_EQ(launches(graph_of(kind, 0, std::size(kCounts)), cuda, &together), 1);
    size_t compared = 0;
    for (size_t k = 0; k < std::size(kCounts); ++k) {
      CaseResult single;
      EXPECT_EQ(launches(graph_of(kind, k, k + 1), cuda, &single), 1);
      for (const auto& [name, values] : single.values) {
        EXPECT_EQ(together.values.at(name), values) << name;
        ++compared;
      }
    }
    EXPECT_EQ(compared, together.values.size());
    EXPECT_GE(compared, std::size(kCounts));
  }
}

/// Adds a copy in 16 bits of every parameter whose update accepts one.
void add_copies(Graph& graph, Storage storage) {
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    const std::optional<size_t> at = copy_input(*node.op);
    if (!at.has_value()) continue;
    const TensorInfo& p = graph.tensor(node.inputs[0]);
    TensorInfo copy{p.name + ".copy", p.type, Role::kCopy, p.layout, kNoNode, {}, storage};
    node.inputs.resize(*at, kNoTensor);
    node.inputs.push_back(graph.add_tensor(std::move(copy)));
  }
  graph.rewrite(std::move(nodes));
}

double rounded(double value, Storage storage) {
  const auto v = static_cast<float>(value);
  return storage == Storage::kF16 ? math::widen(math::narrow<math::F16>(v))
                                  : math::widen(math::narrow<math::Bf16>(v));
}

// Products of the next step read the copies, so these must have the bits of a cast of the updated
// parameter, without another launch. If the step is skipped, the copies stay.
TEST(EmulatedUpdates, WriteTheCopiesOfParametersInTheSameLaunch) {
  cuda::CudaBackend cuda(0);
  size_t compared = 0;
  for (const Kind& kind : kinds()) {
    for (const Storage storage : {Storage::kBf16, Storage::kF16}) {
      for (const bool skips : {false, true}) {
        SCOPED_TRACE(kind.op + (skips ? ", skipped" : ""));
        CaseGraph c = graph_of(kind, 0, std::size(kCounts));
        add_copies(c.graph, storage);
        if (skips) c.values.at(*c.graph.find_tensor("learning_rate")) = {std::nan("")};
        CaseResult result;
        EXPECT_EQ(launches(c, cuda, &result), 1);
        for (const auto& [name, values] : result.values) {
          if (!name.ends_with(".copy")) continue;
          const auto& p = result.values.at(name.substr(0, name.find('.')));
          for (size_t i = 0; i < p.size(); ++i) {
            ASSERT_EQ(values[i], rounded(p[i], storage)) << name << "[" << i << "]";
          }
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared, 5 * 2 * 2 * std::size(kCounts));  // five optimizers
}

// A training step converts all its weights in one launch, to the bits of single casts: no other
// node comes between the copies for two products.
TEST(EmulatedUpdates, CastsOfWeightsAreOneLaunch) {
  cuda::CudaBackend cuda(0);
  const auto step = [](bool together) {
    CaseBuilder b(DType::kF32);
    TensorId y = b.input("x", {3, 33});
    for (const std::string name : {"a", "b", "c"}) {
      y = b.one(name, "Gemm", {{"transB", int64_t{1}}}, {y, b.parameter(name + ".w", {33, 33})});
    }
    CaseGraph c = b.finish(y);
    if (together) {
      std::map<TensorId, TensorId> gradients;
      c = testing::with_gradients(std::move(c), &gradients);
    }
    return c;
  };
  testing::RunOptions options;
  options.precision = Precision::kBf16;
  options.keep_all = true;
  const CaseResult trained = testing::run_case(step(true), cuda, options);
  const CaseResult forward = testing::run_case(step(false), cuda, options);
  const auto& order = trained.program.order;
  const auto op = [&](size_t k) { return trained.program.graph.node(order[k]).op->type(); };
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(op(k), "Cast") << k;
  EXPECT_NE(cuda.prepare_group(trained.program.graph, std::span(order).first(3)), nullptr);
  EXPECT_NE(forward.program.graph.node(forward.program.order[1]).name, "b.w/bf16");
  for (const std::string name : {"a.w/bf16", "b.w/bf16", "c.w/bf16", "c"}) {
    EXPECT_EQ(trained.values.at(name), forward.values.at(name)) << name;
  }
}

TEST(EmulatedUpdates, OneLaunchForEachKind) {
  cuda::CudaBackend cuda(0);
  const std::vector<Kind> all = kinds();
  CaseBuilder b(DType::kF32);
  const TensorId rate = b.input_f32("learning_rate", 0.125), step = b.step(3);
  // Adam and Lion alternate; the plan groups each kind.
  for (size_t k = 0; k < std::size(kCounts); ++k) all[k % 2 == 0 ? 1 : 4].append(b, k, rate, step);
  CaseResult result;
  EXPECT_EQ(launches(b.finish_update(), cuda, &result), 2);
}

// Both updates overwrite their input in place, so they must run one after the other. (Sums over two
// uses of a tensor in one step would be an example.)
TEST(EmulatedUpdates, WhatMeetsInMemoryStaysApart) {
  cuda::CudaBackend cuda(0);
  CaseBuilder b(DType::kF32);
  const TensorId g = b.input("g", {33}), bound = b.input_f32("scale", 0.5);
  const TensorId first = b.node("first", "ClipGradient", {}, {g, bound}, 1, Phase::kUpdate)[0];
  b.node("second", "ClipGradient", {}, {first, bound}, 1, Phase::kUpdate);
  CaseResult result;
  EXPECT_EQ(launches(b.finish_update(), cuda, &result), 2);
  const std::vector<double>& once = result.values.at("first");
  const std::vector<double>& twice = result.values.at("second");
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], once[i] / 2);
}

}  // namespace
}  // namespace trainyard
