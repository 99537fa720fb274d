// Tests of precision bf16 and fp16: which tensors are stored in 16 bits (golden file and rules),
// and their values: each node gives the result of its F32 kernel for the values of its inputs,
// rounded once. So the result depends on the graph only, whether a kernel reads 16 bits itself or
// its inputs are converted. Also tests tf32, which changes no storage.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/math/half.h"
#include "src/graph/op.h"
#include "src/ops/parts.h"
#include "src/ops/tf32.h"
#include "src/passes/assign_precision.h"
#include "src/plan/liveness.h"
#include "tests/support/golden.h"
#include "tests/support/graph_cases.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;
using testing::CaseResult;
using testing::GraphCase;
using testing::RunOptions;
using Ints = std::vector<int64_t>;

CaseGraph differentiated(CaseGraph c) {
  std::map<TensorId, TensorId> gradients;
  return c.loss == kNoTensor ? std::move(c) : testing::with_gradients(std::move(c), &gradients);
}

/// Returns a convolution with its normalization, a dense layer, and a loss on reshaped scores.
CaseGraph small_conv_net() {
  CaseBuilder b(DType::kF32);
  const TensorId h = b.one("conv", "Conv", {{"pads", Ints{1, 1, 1, 1}}},
                           {b.input("x", {2, 3, 5, 5}), b.parameter("conv.weight", {4, 3, 3, 3})});
  const TensorId n = b.node("norm", "BatchNormalization", {{"training_mode", int64_t{1}}},
                            {h, b.parameter("norm.scale", {4}), b.parameter("norm.bias", {4}),
                             b.state("norm.mean", {4}, 0), b.state("norm.var", {4}, 1)},
                            3)[0];
  const TensorId flat = b.one("flat", "Flatten", {}, {b.one("relu", "Relu", {}, {n})});
  const TensorId z =
      b.one("head", "Gemm", {{"transB", int64_t{1}}},
            {flat, b.parameter("head.weight", {6, 100}), b.parameter("head.bias", {6})});
  const TensorId scores = b.one("scores", "Reshape", {{"shape", Ints{4, 3}}}, {z});
  return differentiated(b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {scores, b.labels("labels", 4, 3)}, 2)[0]));
}

TEST(PassPrecision, StoresActivationsAndCopiesOfWeights) {
  CaseGraph c = small_conv_net();
  const std::string before = c.graph.dump();
  assign_half(c.graph, Storage::kBf16);
  c.graph.verify();
  testing::expect_golden("pass_precision.txt",
                         "== before\n" + before + "== after\n" + c.graph.dump());
}

// Applies the storage rules to every case: no op may store a parameter's gradient or a loss in 16
// bits.
void expect_rules(Storage storage) {
  for (const GraphCase& test : testing::graph_cases()) {
    SCOPED_TRACE(test.name);
    CaseGraph c = differentiated(test.build(DType::kF32));
    assign_half(c.graph, storage);
    c.graph.verify();
    std::set<std::string> casts;
    for (const Node& node : c.graph.nodes()) {
      if (node.op->type() == "Cast") {
        EXPECT_TRUE(casts.insert(c.graph.tensor(node.inputs[0]).name).second) << "cast twice";
      }
      for (const int64_t i : node.op->precision_rule().factors) {
        if (i >= static_cast<int64_t>(node.inputs.size())) continue;
        const TensorId id = node.inputs[static_cast<size_t>(i)];
        EXPECT_TRUE(id == kNoTensor || c.graph.tensor(id).storage == storage) << node.name;
      }
      for (const TensorId id : node.outputs) {
        if (id == kNoTensor || node.phase != Phase::kUpdate) continue;
        EXPECT_FALSE(c.graph.tensor(id).is_half()) << node.name;
      }
    }
    for (const TensorId id : c.graph.outputs()) {
      EXPECT_FALSE(c.graph.tensor(id).is_half()) << c.graph.tensor(id).name;
    }
    for (const TensorInfo& t : c.graph.tensors()) {
      EXPECT_TRUE(t.storage == Storage::kAsTyped || t.storage == storage) << t.name;
      EXPECT_TRUE(!t.is_half() || t.role == Role::kActivation) << t.name;
      EXPECT_EQ(t.stored_bytes(), t.type.bytes() / (t.is_half() ? 2 : 1));
    }
    CaseGraph wide = differentiated(test.build(DType::kF64));
    const std::string dump = wide.graph.dump();
    assign_half(wide.graph, storage);
    EXPECT_EQ(wide.graph.dump(), dump) << "F64 is left alone";
  }
}
TEST(PassPrecision, KeepsSensitiveOpsInF32) { expect_rules(Storage::kBf16); }
TEST(PassPrecision, KeepsSensitiveOpsInF32WithFp16) { expect_rules(Storage::kF16); }

// cuBLASLt adds only a bias of the result's type, so on a GPU biases are copied to 16 bits with the
// weights.
TEST(PassPrecision, AGpuReadsABiasAsItsProductIsStored) {
  for (const Processor processor : {Processor::kCpu, Processor::kGpu}) {
    CaseBuilder b(DType::kF32);
    const Attributes transposed{{"transB", int64_t{1}}};
    const TensorId h =
        b.one("h", "Gemm", transposed,
              {b.input("x", {4, 3}), b.parameter("h.weight", {5, 3}), b.parameter("h.bias", {5})});
    const TensorId z = b.one("z", "Gemm", transposed,
                             {b.one("relu", "Relu", {}, {h}), b.parameter("z.weight", {2, 5}),
                              b.parameter("z.bias", {2})});
    CaseGraph c = differentiated(b.finish_with_loss(
        b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, b.labels("labels", 4, 2)}, 2)[0]));
    assign_half(c.graph, Storage::kBf16, processor);
    c.graph.verify();
    for (const Node& node : c.graph.nodes()) {
      if (node.op->type() != "Gemm") continue;
      // Scores are F32, and so is the bias of their layer.
      EXPECT_EQ(c.graph.tensor(node.inputs[2]).is_half(),
                processor == Processor::kGpu && node.name == "h")
          << node.name;
    }
    size_t in_front = 0;
    while (c.graph.nodes()[in_front].op->type() == "Cast") ++in_front;
    EXPECT_EQ(in_front, processor == Processor::kGpu ? 4U : 3U);  // one of them casts the input
  }
}

// A result that may be far larger than the inputs is not stored in a format that ends at 65504.
TEST(PassPrecision, Fp16KeepsSumsInF32) {
  CaseBuilder b(DType::kF32);
  const TensorId h = b.one("h", "Relu", {}, {b.input("x", {4, 3})});
  const TensorId e = b.one("e", "Exp", {}, {h}), t = b.one("t", "Tanh", {}, {e});
  const CaseGraph c = b.finish(b.one("y", "Relu", {}, {t}));
  CaseGraph half = c, brain = c;
  assign_half(half.graph, Storage::kF16);
  assign_half(brain.graph, Storage::kBf16);
  EXPECT_FALSE(half.graph.tensor(e).is_half());
  EXPECT_TRUE(half.graph.tensor(t).is_f16());
  EXPECT_TRUE(brain.graph.tensor(e).is_bf16());
}

// TF32 is only a flag for the backend: each op that multiplies has it, and nothing else
// changes. A device without such instructions gives the bits of fp32.
TEST(PassPrecision, Tf32IsAnAttributeOfProducts) {
  const auto cpu = make_cpu_backend(2);
  for (const GraphCase& test : testing::graph_cases()) {
    SCOPED_TRACE(test.name);
    CaseGraph c = differentiated(test.build(DType::kF32));
    const CaseGraph plain = c;
    allow_tf32(c.graph);
    c.graph.verify();
    for (const Node& node : c.graph.nodes()) {
      const bool multiplies = !node.op->precision_rule().factors.empty();
      EXPECT_EQ(allows_tf32(node), multiplies) << node.name;
    }
    for (const TensorInfo& t : c.graph.tensors()) EXPECT_EQ(t.storage, Storage::kAsTyped) << t.name;
    CaseGraph wide = differentiated(test.build(DType::kF64));
    const std::string dump = wide.graph.dump();
    allow_tf32(wide.graph);
    EXPECT_EQ(wide.graph.dump(), dump) << "F64 is left alone";
    EXPECT_EQ(testing::run_case(c, *cpu, {}).values, testing::run_case(plain, *cpu, {}).values);
  }
}

/// Runs the node alone in F32, on values in row-major order.
std::map<std::string, std::vector<double>> run_alone(
    const Graph& graph, const Node& node, Backend& backend,
    const std::function<std::vector<double>(TensorId)>& value_of) {
  CaseGraph alone;
  std::map<TensorId, TensorId> ids = {{kNoTensor, kNoTensor}};
  std::vector<TensorId> inputs;
  for (const TensorId id : node.inputs) {
    if (!ids.contains(id)) {
      const TensorInfo& t = graph.tensor(id);
      const Role role = is_persistent(t.role) ? t.role : Role::kInput;
      TensorInfo info{t.name, t.type, role, Layout::kRowMajor, kNoNode, {}};
      info.spread = t.spread;
      ids[id] = alone.graph.add_tensor(std::move(info));
      alone.values[ids[id]] = value_of(id);
    }
    inputs.push_back(ids[id]);
  }
  std::vector<std::string> names;
  for (const TensorId id : node.outputs) {
    names.push_back(id == kNoTensor ? "" : graph.tensor(id).name);
  }
  alone.graph.add_node(node.name, *node.op, node.attributes, inputs, names, node.phase).value();
  return testing::run_case(alone, backend, {.channels_last = false}).values;
}

void expect_rounded_once(const CaseGraph& c, Backend& backend, Precision precision) {
  RunOptions options;
  options.channels_last = false;
  options.precision = precision;
  const CaseResult all = testing::run_case(c, backend, options);
  EXPECT_EQ(all.planned_bytes, all.used_bytes);
  const Graph& graph = all.program.graph;
  std::set<TensorId> written;  // caches, which later nodes read after their update
  const auto value_of = [&](TensorId id) {
    const auto given = c.values.find(id);  // its value before any update
    return given != c.values.end() && !written.contains(id) ? given->second
                                                            : all.values.at(graph.tensor(id).name);
  };
  for (const Node& node : graph.nodes()) {
    SCOPED_TRACE(node.name + " " + std::string(node.op->type()));
    // A fused node rounds each part's outputs, as the separate nodes do.
    if (has_parts(node.op->type())) continue;
    for (const auto& [name, expected] : run_alone(graph, node, backend, value_of)) {
      const TensorInfo& t = graph.tensor(graph.find_tensor(name).value());
      const std::vector<double>& got = all.values.at(name);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const auto exact = static_cast<float>(expected[i]);
        const float rounded = t.is_bf16()  ? math::widen(math::narrow<math::Bf16>(exact))
                              : t.is_f16() ? math::widen(math::narrow<math::F16>(exact))
                                           : exact;
        ASSERT_EQ(static_cast<float>(got[i]), rounded) << name << "[" << i << "]";
      }
    }
    for (const int64_t i : node.op->mutated_inputs(node)) {
      const TensorId id = node.inputs[static_cast<size_t>(i)];
      if (id != kNoTensor && graph.tensor(id).role == Role::kCache) written.insert(id);
    }
  }
}

void expect_every_case_rounded_once(Precision precision) {
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(2);
  for (const GraphCase& test : testing::graph_cases()) {
    SCOPED_TRACE(test.name);
    const CaseGraph c = differentiated(test.build(DType::kF32));
    expect_rounded_once(c, *reference, precision);
    expect_rounded_once(c, *cpu, precision);
    if (::testing::Test::HasFatalFailure()) return;
  }
}
TEST(Precision, EachNodeRoundsOnceWhatItComputesInF32) {
  expect_every_case_rounded_once(Precision::kBf16);
}
TEST(Precision, EachNodeRoundsOnceInFp16) { expect_every_case_rounded_once(Precision::kFp16); }

// Memory is reused as in a real job, several times: conversions must not be disturbed by tensors
// that share their memory. Recompute changes no bit, nor does a second run or another backend with
// the same number of threads.
TEST(Precision, RepeatsBitByBitAndUsesThePlan) {
  const auto cpu = make_cpu_backend(2), other = make_cpu_backend(2);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const CaseGraph c = testing::random_training_graph(seed, DType::kF32);
    for (const bool channels_last : {true, false}) {
      RunOptions options{.channels_last = channels_last, .keep_all = false};
      options.precision = seed % 3 == 0 ? Precision::kFp16 : Precision::kBf16;
      const CaseResult first = testing::run_case(c, *cpu, options);
      EXPECT_EQ(first.planned_bytes, first.used_bytes);
      options.runs = 2;
      EXPECT_EQ(testing::run_case(c, *other, options).values, first.values);
      options.recompute = seed % 2 == 0 ? Recompute::kBlocks : Recompute::kFull;
      const CaseResult again = testing::run_case(c, *cpu, options);
      EXPECT_EQ(again.values, first.values);
      EXPECT_EQ(again.planned_bytes, again.used_bytes);
      options.precision = Precision::kFp32;
      EXPECT_NE(testing::run_case(c, *cpu, options).values, first.values) << "nothing was rounded";
    }
  }
}

// Reading a tensor that is stored in 16 bits gives F32, in whole or in part; writing to a computed
// tensor throws.
template <typename Half>
void expect_reads_widen(Storage storage) {
  CaseBuilder b(DType::kF32);
  const TensorId h = b.one("h", "Relu", {}, {b.input("x", {1, 3, 2, 2})});
  CaseGraph c = b.finish(b.one("y", "Tanh", {}, {h}));
  assign_half(c.graph, storage);
  c.graph.mark_output(h);
  ASSERT_EQ(c.graph.tensor(h).storage, storage);
  const auto cpu = make_cpu_backend(1);
  PreparedProgram prepared(compile(c.graph, {}), *cpu);
  const Program& p = prepared.program();
  Arena arena(*cpu, p.persistent_bytes, p.transient_bytes, prepared.workspace_bytes());
  Executor executor(std::move(prepared), arena);
  for (const auto& [id, values] : c.values) testing::write_values(executor, id, values);
  executor.run();
  const std::vector<double> whole = testing::read_values(executor, h);
  const std::vector<double>& x = c.values.at(c.graph.find_tensor("x").value());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto positive = static_cast<float>(std::max(x[i], 0.0));
    EXPECT_EQ(static_cast<float>(whole[i]), math::widen(math::narrow<Half>(positive)));
  }
  std::vector<float> part(5);
  executor.read(h, std::as_writable_bytes(std::span(part)), 3 * sizeof(float));
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], static_cast<float>(whole[i + 3]));
  const std::vector<float> values(12);
  EXPECT_THROW(executor.write(h, std::as_bytes(std::span(values))), InvariantError);
}
TEST(Precision, ReadsWidenAndWritesAreRefused) {
  expect_reads_widen<math::Bf16>(Storage::kBf16);
  expect_reads_widen<math::F16>(Storage::kF16);
}

}  // namespace
}  // namespace trainyard
