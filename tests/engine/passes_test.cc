// Tests of each pass by itself: the graph that it makes of a small graph (golden files), and that
// results with and without it agree to the bit. The tests catch a pass that loses a reader, moves a
// node before its inputs or lets running statistics be updated twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "kernels/alignment.h"
#include "src/graph/op.h"
#include "src/ops/constant_of_shape.h"
#include "src/passes/fuse.h"
#include "src/passes/fuse_convolutions.h"
#include "src/passes/fuse_head.h"
#include "src/passes/fuse_pools.h"
#include "src/passes/fuse_products.h"
#include "src/passes/fuse_sums.h"
#include "src/passes/recompute.h"
#include "src/passes/recompute_gates.h"
#include "src/passes/simplify.h"
#include "src/passes/split_gradients.h"
#include "tests/support/golden.h"
#include "tests/support/graph_cases.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;
using testing::CaseResult;
using testing::RunOptions;
using Ints = std::vector<int64_t>;

constexpr uint64_t kRandomGraphs = 60;

/// Returns residual blocks as in ResNet, dropout and a head; every parameter's gradient is a
/// program output.
CaseGraph blocks(DType dtype, int count) {
  CaseBuilder b(dtype);
  const Attributes same{{"pads", Ints{1, 1, 1, 1}}};
  const auto norm = [&](const std::string& name, TensorId x) {
    return b.node(name, "BatchNormalization", {{"training_mode", int64_t{1}}},
                  {x, b.parameter(name + ".scale", {4}), b.parameter(name + ".bias", {4}),
                   b.state(name + ".mean", {4}, 0.5), b.state(name + ".var", {4}, 0.5)},
                  3)[0];
  };
  const auto conv = [&](const std::string& name, TensorId x, int64_t C) {
    return b.one(name, "Conv", same, {x, b.parameter(name + ".weight", {4, C, 3, 3})});
  };
  const TensorId step = b.step(7);
  TensorId x = b.one("stem.relu", "Relu", {},
                     {norm("stem.bn", conv("stem", b.input("x", {2, 3, 6, 6}), 3))});
  for (int k = 1; k <= count; ++k) {
    const std::string name = "block" + std::to_string(k);
    const TensorId h =
        b.one(name + ".relu1", "Relu", {}, {norm(name + ".bn1", conv(name + ".conv1", x, 4))});
    const TensorId g = norm(name + ".bn2", conv(name + ".conv2", h, 4));
    x = b.one(name + ".relu2", "Relu", {}, {b.one(name + ".add", "Add", {}, {g, x})});
  }
  const TensorId flat = b.one("flat", "Flatten", {}, {x});
  const TensorId kept =
      b.one("drop", "Dropout", {{"ratio", 0.25}, {"stream", int64_t{3}}}, {flat, step});
  const TensorId z =
      b.one("head", "Gemm", {{"transB", int64_t{1}}}, {kept, b.parameter("head.weight", {5, 144})});
  CaseGraph c = b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, b.labels("labels", 2, 5)}, 2)[0]);
  std::map<TensorId, TensorId> gradients;
  return testing::with_gradients(std::move(c), &gradients);
}

int64_t count_of(const Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& n) { return n.op->type() == op; });
}
/// Counts the nodes of SkipNormalization or its gradient that have this form, with or without
/// dropout.
int64_t count_sums(const Graph& graph, std::string_view op, std::string_view form, bool drops) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& n) {
    return n.op->type() == op && n.attributes.get_string("form", "") == form &&
           (n.attributes.find("ratio") != nullptr) == drops;
  });
}

void expect_same_bits(const CaseResult& got, const CaseResult& expected) {
  ASSERT_EQ(got.values.size(), expected.values.size());
  for (const auto& [name, values] : expected.values) EXPECT_EQ(got.values.at(name), values) << name;
}

RunOptions real_job(bool channels_last) {
  return {.channels_last = channels_last, .keep_all = false, .runs = 2};
}

TEST(PassFuse, PutsNormalizationResidualAndActivationTogether) {
  CaseGraph c = blocks(DType::kF32, 1);
  const std::string before = c.graph.dump();
  fuse(c.graph);
  c.graph.verify();
  testing::expect_golden("pass_fuse.txt", "== before\n" + before + "== after\n" + c.graph.dump());
  EXPECT_EQ(count_of(c.graph, "BatchNormalizationRelu"), 3);
  EXPECT_EQ(count_of(c.graph, "BatchNormalizationReluGrad"), 3);
  EXPECT_EQ(count_of(c.graph, "Relu") + count_of(c.graph, "ReluGrad"), 0);
}

// A block's input has two readers, so its gradient is a sum; the gradient of its normalization adds
// the two terms.
TEST(PassFuse, PutsSumsOfGradientsIntoNormalizations) {
  CaseGraph c = blocks(DType::kF32, 2);
  fuse(c.graph);
  ASSERT_EQ(count_of(c.graph, "BatchNormalizationReluGrad"), 5);
  ASSERT_EQ(count_of(c.graph, "Add"), 2);
  const auto sum_of = [&](const Node& n) { return c.graph.tensor(n.inputs[4]).producer; };
  std::map<std::string, std::vector<TensorId>> terms;  // by normalization
  for (const Node& n : c.graph.nodes()) {
    if (n.op->type() != "BatchNormalizationReluGrad") continue;
    const Node& add = c.graph.node(sum_of(n));
    if (add.op->type() == "Add") terms[n.name] = add.inputs;
  }
  fuse_sums(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_of(c.graph, "Add"), 0);
  EXPECT_EQ(count_of(c.graph, "BatchNormalizationReluGrad"), 3);
  for (const Node& n : c.graph.nodes()) {
    if (n.op->type() != "SkipBatchNormalizationReluGrad") continue;
    EXPECT_EQ((std::vector{n.inputs[4], n.inputs[7]}), terms.at(n.name)) << n.name;
    terms.erase(n.name);
  }
  EXPECT_TRUE(terms.empty());

  CaseGraph marked = blocks(DType::kF32, 1);
  fuse(marked.graph);
  marked.graph.mark_output(marked.graph.find_tensor("stem.relu/grad_sum1").value());
  fuse_sums(marked.graph);
  EXPECT_EQ(count_of(marked.graph, "SkipBatchNormalizationReluGrad"), 0);
}

TEST(PassFuse, LeavesNodesWithOtherReaders) {
  CaseBuilder b(DType::kF32);
  const TensorId n = b.node("n", "BatchNormalization", {},
                            {b.input("x", {3, 4}), b.parameter("s", {4}), b.parameter("b", {4}),
                             b.state("m", {4}, 0), b.state("v", {4}, 1)},
                            3)[0];
  const TensorId r = b.one("r", "Relu", {}, {n});
  CaseGraph c = b.finish(b.one("y", "Add", {}, {r, n}));
  fuse(c.graph);
  EXPECT_EQ(count_of(c.graph, "BatchNormalization"), 1);
  CaseBuilder marked(DType::kF32);
  const TensorId m = marked.node(
      "n", "BatchNormalization", {},
      {marked.input("x", {3, 4}), marked.parameter("s", {4}), marked.parameter("b", {4}),
       marked.state("m", {4}, 0), marked.state("v", {4}, 1)},
      3)[0];
  CaseGraph d = marked.finish(marked.one("r", "Relu", {}, {m}));
  d.graph.mark_output(m);
  fuse(d.graph);
  EXPECT_EQ(count_of(d.graph, "BatchNormalization"), 1);
}

TEST(PassFuse, ChangesNoBitOnTheCpu) {
  const CaseGraph c = blocks(DType::kF32, 3);
  for (const int threads : {1, 3}) {
    const auto cpu = make_cpu_backend(threads);
    for (const bool channels_last : {true, false}) {
      SCOPED_TRACE(channels_last ? "channels-last" : "row-major");
      RunOptions options = real_job(channels_last);
      const CaseResult fused = testing::run_case(c, *cpu, options);
      options.passes.fuse = false;
      const CaseResult plain = testing::run_case(c, *cpu, options);
      EXPECT_EQ(count_of(plain.program.graph, "BatchNormalizationRelu"), 0);
      EXPECT_EQ(count_of(fused.program.graph, "BatchNormalizationRelu"), 7);
      EXPECT_EQ(count_of(fused.program.graph, "SkipBatchNormalizationReluGrad"), 3);
      expect_same_bits(fused, plain);
      EXPECT_LE(fused.planned_bytes, plain.planned_bytes);
      EXPECT_EQ(fused.planned_bytes, fused.used_bytes);
    }
  }
}

/// Returns convolutions with bias and ReLU, as in VGG.
CaseGraph plain_net(bool bias = true) {
  CaseBuilder b(DType::kF32);
  TensorId x = b.input("x", {2, 3, 8, 6});
  for (int k = 1; k <= 3; ++k) {
    const std::string name = "conv" + std::to_string(k);
    std::vector<TensorId> inputs = {x, b.parameter(name + ".weight", {4, k == 1 ? 3 : 4, 3, 3})};
    if (bias) inputs.push_back(b.parameter(name + ".bias", {4}));
    x = b.one(name + ".relu", "Relu", {},
              {b.one(name, "Conv", {{"pads", Ints{1, 1, 1, 1}}}, std::move(inputs))});
  }
  std::map<TensorId, TensorId> gradients;
  return testing::with_gradients(
      b.finish(
          b.one("pool", "MaxPool", {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}, {x})),
      &gradients);
}

TEST(PassFuse, PutsReluIntoConvolutions) {
  CaseGraph c = plain_net();
  fuse_convolutions(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_of(c.graph, "ConvRelu"), 3);
  EXPECT_EQ(count_of(c.graph, "ReluConvGrad"), 3);
  EXPECT_EQ(count_of(c.graph, "Relu") + count_of(c.graph, "ReluGrad"), 0);
  CaseGraph without = plain_net(/*bias=*/false);
  fuse_convolutions(without.graph);
  EXPECT_EQ(count_of(without.graph, "Conv"), 3);
  EXPECT_EQ(count_of(without.graph, "ReluGrad"), 3);
}

TEST(PassFuse, LeavesConvolutionsWithOtherReaders) {
  for (const bool marked : {true, false}) {
    CaseBuilder b(DType::kF32);
    const TensorId pre =
        b.one("pre", "Conv", {},
              {b.image("x", {1, 2, 4, 4}), b.parameter("w", {3, 2, 1, 1}), b.parameter("b", {3})});
    const TensorId r = b.one("r", "Relu", {}, {pre});
    CaseGraph c = b.finish(marked ? r : b.one("y", "Add", {}, {r, pre}));
    if (marked) c.graph.mark_output(pre);
    std::map<TensorId, TensorId> gradients;
    c = testing::with_gradients(std::move(c), &gradients);
    fuse_convolutions(c.graph);
    c.graph.verify();
    EXPECT_EQ(count_of(c.graph, "ConvRelu"), 0);
    // The gradient of the sum's other term is added in between, which prevents fusion; a tensor
    // that is only marked as an output does not.
    EXPECT_EQ(count_of(c.graph, "ReluConvGrad"), marked ? 1 : 0);
  }
}

TEST(PassFuse, ConvolutionsWithReluChangeNoBitOnTheCpu) {
  const CaseGraph c = plain_net();
  const auto cpu = make_cpu_backend(2);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
      for (const bool channels_last : {true, false}) {
        SCOPED_TRACE(std::string(name_of(precision)) + " " + std::string(name_of(recompute)) +
                     (channels_last ? " channels-last" : " row-major"));
        RunOptions options = real_job(channels_last);
        options.precision = precision;
        options.recompute = recompute;
        const CaseResult fused = testing::run_case(c, *cpu, options);
        options.passes.fuse = false;
        const CaseResult plain = testing::run_case(c, *cpu, options);
        EXPECT_GE(count_of(fused.program.graph, "ConvRelu"), 3);
        EXPECT_EQ(count_of(fused.program.graph, "ReluConvGrad"), 3);
        EXPECT_EQ(count_of(plain.program.graph, "ConvRelu"), 0);
        expect_same_bits(fused, plain);
        EXPECT_LE(fused.planned_bytes, plain.planned_bytes);
      }
    }
  }
}

TEST(PassSplitGradients, AGradientOfWeightsIsANodeOfItsOwn) {
  CaseGraph c = plain_net();
  fuse_convolutions(c.graph);
  split_gradients(c.graph);
  c.graph.verify();
  // The first convolution reads the batch, which has no gradient.
  EXPECT_EQ(count_of(c.graph, "ReluConvGrad"), 3);
  EXPECT_EQ(count_of(c.graph, "ConvGrad"), 2);
  for (const Node& node : c.graph.nodes()) {
    if (!node.name.ends_with("/weights")) continue;
    EXPECT_EQ(node.outputs[0], kNoTensor) << node.name;
    EXPECT_NE(node.outputs[1], kNoTensor) << node.name;
  }
}

// The product's gradient that reads the loss's F32 gradient narrows it once, for both results.
TEST(PassSplitGradients, NoLaunchIsAdded) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    SCOPED_TRACE(name_of(precision));
    CaseBuilder b(DType::kF32);
    TensorId x = b.input("x", {8, 16});
    for (const std::string name : {"a", "b", "c"}) {
      x = b.one(name, "Gemm", {{"transB", int64_t{1}}},
                {x, b.parameter(name + ".w", {16, 16}), b.parameter(name + ".b", {16})});
      x = b.one(name + ".tanh", "Tanh", {}, {x});
    }
    const TensorId scores =
        b.one("d", "Gemm", {{"transB", int64_t{1}}}, {x, b.parameter("d.w", {16, 16})});
    std::map<TensorId, TensorId> gradients;
    CaseGraph c = testing::with_gradients(
        b.finish_with_loss(b.node("loss", "SoftmaxCrossEntropyLoss", {},
                                  {scores, b.labels("labels", 8, 16)}, 2)[0]),
        &gradients);
    c.graph.mark_output(scores);  // as a classifier, which keeps the head and the loss apart
    run_passes(c.graph, {}, Recompute::kNone, precision, Processor::kGpu);
    const int64_t before = count_of(c.graph, "GemmGrad");
    split_gradients(c.graph);
    c.graph.verify();
    EXPECT_EQ(before, 4);
    EXPECT_EQ(count_of(c.graph, "GemmGrad") - before, precision == Precision::kFp32 ? 3 : 2);
  }
}

/// Returns convolutions and pools, with ReLU before the pool as in VGG, or after it as in LeNet.
CaseGraph pooled_net(bool before, bool keeps = true, bool trained = true) {
  CaseBuilder b(DType::kF32);
  TensorId x = b.input("x", {2, 3, 9, 8});
  Attributes window{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  if (keeps) window.set("keep_winner", int64_t{1});
  for (int k = 1; k <= 2; ++k) {
    const std::string n = std::to_string(k);
    x = b.one("conv" + n, "Conv", {{"pads", Ints{1, 1, 1, 1}}},
              {x, b.parameter("w" + n, {5, k == 1 ? 3 : 5, 3, 3}), b.parameter("b" + n, {5})});
    if (before) x = b.one("relu" + n, "Relu", {}, {x});
    x = b.node("pool" + n, "MaxPool", window, {x}, keeps ? 2 : 1)[0];
    if (!before) x = b.one("relu" + n, "Relu", {}, {x});
  }
  CaseGraph c = b.finish(x);
  std::map<TensorId, TensorId> gradients;
  return trained ? testing::with_gradients(std::move(c), &gradients) : c;
}
int64_t count_pools(const Graph& graph, std::string_view op, bool relu) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& n) {
    return n.op->type() == op && n.attributes.get_int("relu", 0) == relu;
  });
}

TEST(PassFuse, PutsReluIntoPools) {
  for (const bool before : {true, false}) {
    for (const bool trained : {true, false}) {
      for (const bool keeps : {true, false}) {
        SCOPED_TRACE(std::string(before ? "before" : "behind") + (trained ? " trained" : "") +
                     (keeps ? " keeps" : ""));
        CaseGraph c = pooled_net(before, keeps, trained);
        fuse_pools(c.graph);
        c.graph.verify();
        const bool fuses = keeps || !trained;  // without kept winners, backward searches them in x
        EXPECT_EQ(count_pools(c.graph, "MaxPool", true), fuses ? 2 : 0);
        EXPECT_EQ(count_of(c.graph, "Relu"), fuses ? 0 : 2);
        EXPECT_EQ(count_pools(c.graph, "MaxPoolGrad", true), fuses && trained ? 2 : 0);
        EXPECT_EQ(count_of(c.graph, "ReluGrad"), fuses || !trained ? 0 : 2);
      }
    }
  }
}

// A ReLU is not fused if its result has other readers, or if the pool's window has more cells than
// a byte can number.
TEST(PassFuse, LeavesPoolsWhoseReluHasOtherReaders) {
  const auto fused_pools = [](int64_t side, bool before, bool marked, bool read_twice) {
    CaseBuilder b(DType::kF32);
    const TensorId x = b.image("x", {1, 1, 17, 17});
    const Attributes window{{"kernel_shape", Ints{side, side}}, {"keep_winner", int64_t{1}}};
    const TensorId r = before ? b.one("r", "Relu", {}, {x}) : kNoTensor;
    const TensorId p = b.node("p", "MaxPool", window, {before ? r : x}, 2)[0];
    TensorId y = before ? p : b.one("r", "Relu", {}, {p});
    const TensorId between = before ? r : p;
    if (read_twice) {
      const TensorId mean = b.one("mean", "GlobalAveragePool", {}, {between});
      y = b.one("sum", "Add", {}, {b.one("flat", "GlobalAveragePool", {}, {y}), mean});
    }
    CaseGraph c = b.finish(b.one("end", "Flatten", {}, {y}));
    if (marked) c.graph.mark_output(between);
    std::map<TensorId, TensorId> gradients;
    c = testing::with_gradients(std::move(c), &gradients);
    fuse_pools(c.graph);
    c.graph.verify();
    return count_pools(c.graph, "MaxPool", true);
  };
  for (const bool before : {true, false}) {
    EXPECT_EQ(fused_pools(3, before, false, false), 1);
    EXPECT_EQ(fused_pools(16, before, false, false), 0);
    EXPECT_EQ(fused_pools(3, before, true, false), 0);
    EXPECT_EQ(fused_pools(3, before, false, true), 0);
  }
}

TEST(PassFuse, PoolsWithReluChangeNoBitOnTheCpu) {
  const auto cpu = make_cpu_backend(2);
  for (const bool before : {true, false}) {
    const CaseGraph c = pooled_net(before);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
        for (const bool channels_last : {true, false}) {
          SCOPED_TRACE(std::string(before ? "before " : "behind ") +
                       std::string(name_of(precision)) + " " + std::string(name_of(recompute)) +
                       (channels_last ? " channels-last" : " row-major"));
          RunOptions options = real_job(channels_last);
          options.precision = precision;
          options.recompute = recompute;
          const CaseResult fused = testing::run_case(c, *cpu, options);
          options.passes.fuse = false;
          const CaseResult plain = testing::run_case(c, *cpu, options);
          EXPECT_GE(count_pools(fused.program.graph, "MaxPool", true), 2);
          EXPECT_EQ(count_of(fused.program.graph, "Relu"), 0);
          EXPECT_GE(count_of(plain.program.graph, "Relu"), 2);
          expect_same_bits(fused, plain);
          // With recompute, winners are kept in addition to the pool's input at the end of a
          // segment.
          if (recompute == Recompute::kNone) {
            EXPECT_LE(fused.planned_bytes, plain.planned_bytes);
          }
        }
      }
    }
  }
}

/// Returns fully connected layers with ReLU between them, and a dropout after the second one.
CaseGraph relu_net(bool dropped = false) {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  TensorId x = b.input("x", {6, 5});
  for (const std::string n : {"1", "2"}) {
    x = b.one("relu" + n, "Relu", {},
              {b.one("fc" + n, "Gemm", trans_b,
                     {x, b.parameter("w" + n, {9, n == "1" ? 5 : 9}), b.parameter("b" + n, {9})})});
    if (dropped && n == "2") {
      x = b.one("drop", "Dropout", {{"ratio", 0.25}, {"stream", int64_t{1}}}, {x, b.step(7)});
    }
  }
  std::map<TensorId, TensorId> gradients;
  return testing::with_gradients(
      b.finish(b.one("y", "Gemm", trans_b, {x, b.parameter("w3", {3, 9})})), &gradients);
}

TEST(PassFuse, FusesReluIntoProductsOnlyForAGpu) {
  for (const Processor processor : {Processor::kCpu, Processor::kGpu}) {
    for (const bool dropped : {false, true}) {
      const bool gpu = processor == Processor::kGpu;
      CaseGraph c = relu_net(dropped);
      run_passes(c.graph, {}, Recompute::kNone, Precision::kFp32, processor);
      c.graph.verify();
      EXPECT_EQ(count_of(c.graph, "GemmRelu"), gpu ? 2 : 0);
      // Between the gradients of a dropout and of a product, ReluGrad remains a node of its own.
      EXPECT_EQ(count_of(c.graph, "ReluGemmGrad"), gpu ? (dropped ? 1 : 2) : 0);
      EXPECT_EQ(count_of(c.graph, "ReluGrad"), gpu ? (dropped ? 1 : 0) : 2);
      EXPECT_EQ(c.graph.find_tensor("relu1/mask").has_value(), gpu);
      EXPECT_EQ(c.graph.find_tensor("relu2/mask").has_value(), gpu && !dropped);
    }
  }
}

// The CPU runs fused nodes by the kernels of their parts, as in PassHead.ChangesNoBitOnTheCpu.
TEST(PassFuse, ProductsWithReluChangeNoBitOnTheCpu) {
  const auto cpu = make_cpu_backend(2);
  const CaseGraph c = relu_net();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      SCOPED_TRACE(std::string(name_of(precision)) + " " + std::string(name_of(recompute)));
      RunOptions options = real_job(true);
      options.precision = precision;
      options.recompute = recompute;
      const CaseResult plain = testing::run_case(c, *cpu, options);
      options.processor = Processor::kGpu;
      const CaseResult fused = testing::run_case(c, *cpu, options);
      EXPECT_GE(count_of(fused.program.graph, "GemmRelu"), 2);
      EXPECT_EQ(count_of(plain.program.graph, "GemmRelu"), 0);
      if (precision == Precision::kFp32) expect_same_bits(fused, plain);
    }
  }
}

// On a CPU, the sums of low-rank additions belong to the products before them. Oddly sized products
// sum in the same order, and the other term is added last, as the separate node does.
TEST(PassFuse, LowRankSumsChangeNoBitOnTheCpu) {
  const auto cpu = make_cpu_backend(2);
  for (const testing::GraphCase& test : testing::graph_cases()) {
    if (!test.name.starts_with("GemmAdd/")) continue;
    std::map<TensorId, TensorId> gradients;
    const CaseGraph c = testing::with_gradients(test.build(DType::kF32), &gradients);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      SCOPED_TRACE(test.name + " " + std::string(name_of(precision)));
      RunOptions options = real_job(true);
      options.precision = precision;
      const CaseResult fused = testing::run_case(c, *cpu, options);
      EXPECT_EQ(count_of(fused.program.graph, "GemmAdd"), 2);
      EXPECT_GE(count_of(fused.program.graph, "GemmGradAdd"), 2);
      EXPECT_EQ(count_of(compile(c.graph, {.processor = Processor::kGpu}).graph, "GemmAdd"), 0);
      options.passes.fuse = false;
      const CaseResult plain = testing::run_case(c, *cpu, options);
      EXPECT_EQ(count_of(plain.program.graph, "GemmAdd"), 0);
      if (precision == Precision::kFp32) expect_same_bits(fused, plain);
    }
  }
}

/// Returns blocks as in a transformer, with GELU between reshapes, and normalized sums, one of
/// whose terms may go through dropout.
CaseGraph positions_net(int count, bool dropped = false) {
  CaseBuilder b(DType::kF32);
  const TensorId step = b.step(7);
  const Attributes trans_b{{"transB", int64_t{1}}};
  const auto reshape = [&](const std::string& name, TensorId x, Ints shape) {
    return b.one(name, "Reshape", {{"shape", std::move(shape)}}, {x});
  };
  const auto linear = [&](const std::string& name, TensorId x, int64_t in, int64_t out) {
    const TensorId product =
        b.one(name + "/product", "Gemm", trans_b,
              {reshape(name + "/rows", x, {6, in}), b.parameter(name + ".weight", {out, in}),
               b.parameter(name + ".bias", {out})});
    return reshape(name, product, {2, 3, out});
  };
  TensorId x = linear("in", b.input("x", {2, 3, 5}), 5, 8);
  for (int k = 1; k <= count; ++k) {
    const std::string name = "block" + std::to_string(k);
    const TensorId n =
        b.node(name + ".ln", "LayerNormalization", {},
               {x, b.parameter(name + ".scale", {8}), b.parameter(name + ".b", {8})}, 3)[0];
    const TensorId g = b.one(name + ".gelu", "Gelu", {{"approximate", std::string("tanh")}},
                             {linear(name + ".fc", n, 8, 16)});
    TensorId z = linear(name + ".proj", g, 16, 8);
    if (dropped) {
      z = b.one(name + ".drop", "Dropout", {{"ratio", 0.25}, {"stream", int64_t{k}}}, {z, step});
    }
    // The new term is the left or the right operand.
    x = b.one(name + ".add", "Add", {},
              k % 2 == 0 ? std::vector<TensorId>{z, x} : std::vector<TensorId>{x, z});
  }
  const TensorId last = b.node("rms", "RMSNormalization", {}, {x, b.parameter("scale", {8})}, 2)[0];
  std::map<TensorId, TensorId> gradients;
  return testing::with_gradients(b.finish(last), &gradients);
}

TEST(PassFuse, PutsGeluIntoProductsAndSumsIntoNormalizations) {
  CaseGraph c = positions_net(2);
  fuse_products(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_of(c.graph, "GemmGelu"), 2);
  EXPECT_EQ(count_of(c.graph, "GeluGemmGrad"), 2);
  EXPECT_EQ(count_of(c.graph, "Gelu") + count_of(c.graph, "GeluGrad"), 0);
  fuse_sums(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_sums(c.graph, "SkipNormalization", "layer", /*drops=*/false),
            1);  // the first block's x is not a sum
  EXPECT_EQ(count_sums(c.graph, "SkipNormalization", "rms", /*drops=*/false), 1);
  EXPECT_EQ(count_sums(c.graph, "SkipNormalizationGrad", "layer", /*drops=*/false), 2);
  EXPECT_EQ(count_of(c.graph, "Add"), 0);
}

TEST(PassFuse, PutsDropoutInFrontOfSumsIntoNormalizations) {
  CaseGraph c = positions_net(2, /*dropped=*/true);
  fuse_sums(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_sums(c.graph, "SkipNormalization", "layer", /*drops=*/true), 1);
  EXPECT_EQ(count_sums(c.graph, "SkipNormalization", "rms", /*drops=*/true), 1);
  EXPECT_EQ(count_of(c.graph, "Dropout") + count_of(c.graph, "Add"), 0);
  // In the backward pass, the last sum has no residual branch, and the first normalization's x is
  // not a sum.
  EXPECT_EQ(count_sums(c.graph, "SkipNormalizationGrad", "rms", /*drops=*/true), 1);
  EXPECT_EQ(count_sums(c.graph, "SkipNormalizationGrad", "layer", /*drops=*/true), 1);
  EXPECT_EQ(count_sums(c.graph, "SkipNormalizationGrad", "layer", /*drops=*/false), 1);
  EXPECT_EQ(count_of(c.graph, "DropoutGrad"), 0);
}

TEST(SkipNormalization, RefusesInputsOfOtherForms) {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.input("x", {3, 8}), scale = b.parameter("scale", {8});
  const TensorId inv = b.input("inv", {3, 1}), step = b.step(7), none = kNoTensor;
  const CaseGraph c = b.finish(b.one("y", "Relu", {}, {x}));
  const auto refusal = [&](std::string_view op, const Attributes& attributes,
                           const std::vector<TensorId>& inputs) {
    const auto types = get_op(op).infer(InferContext(c.graph, attributes, inputs));
    return types.ok() ? "" : types.error().message;
  };
  const Attributes rms{{"form", std::string("rms")}};
  const Attributes other{{"form", std::string("batch")}};
  EXPECT_EQ(refusal("SkipNormalization", {}, {x, scale, scale, x}), "");
  EXPECT_EQ(refusal("SkipNormalization", rms, {x, scale, none, x}), "");
  EXPECT_EQ(refusal("SkipNormalization", {{"ratio", 0.5}}, {x, scale, none, x, step}), "");
  EXPECT_EQ(refusal("SkipNormalization", other, {x, scale, none, x}),
            "form: 'batch' is not supported, expected layer or rms");
  EXPECT_EQ(refusal("SkipNormalization", rms, {x, scale, scale, x}),
            "b: the form rms does not take this input");
  EXPECT_EQ(refusal("SkipNormalization", {}, {x, scale}), "skip: this input is required");
  EXPECT_EQ(refusal("SkipNormalization", {{"ratio", 0.5}}, {x, scale, none, x}),
            "ratio: a dropout needs the input step");

  EXPECT_EQ(refusal("SkipNormalizationGrad", {}, {x, scale, x, inv, inv, x}), "");
  EXPECT_EQ(refusal("SkipNormalizationGrad", rms, {x, scale, x, inv, none, x}), "");
  EXPECT_EQ(refusal("SkipNormalizationGrad", {}, {x, scale, x, inv, none, x}),
            "mean: this input is required");
  EXPECT_EQ(refusal("SkipNormalizationGrad", rms, {x, scale, x, inv, inv, x}),
            "mean: the form rms does not take this input");
  EXPECT_EQ(refusal("SkipNormalizationGrad", {}, {x, scale, x, inv, inv}),
            "skip: this input is required where there is no dropout");
}

TEST(PassFuse, LeavesDropoutWithOtherReaders) {
  for (const bool marked : {true, false}) {
    CaseBuilder b(DType::kF32);
    const TensorId x = b.one("x", "Tanh", {}, {b.input("p", {3, 8})});
    const TensorId kept =
        b.one("kept", "Dropout", {{"ratio", 0.5}}, {b.one("z", "Sigmoid", {}, {x}), b.step(7)});
    const TensorId y =
        b.node("y", "LayerNormalization", {},
               {b.one("sum", "Add", {}, {x, kept}), b.parameter("scale", {8})}, 3)[0];
    CaseGraph c = b.finish(marked ? y : b.one("last", "Mul", {}, {y, kept}));
    if (marked) c.graph.mark_output(kept);
    fuse_sums(c.graph);
    c.graph.verify();
    EXPECT_EQ(count_of(c.graph, "Dropout"), 1);
    EXPECT_EQ(count_sums(c.graph, "SkipNormalization", "layer", /*drops=*/false), 1);
  }
}

TEST(PassFuse, InferenceKeepsNoProductBehindGelu) {
  CaseBuilder b(DType::kF32);
  const TensorId h = b.one("h", "Gemm", {{"transB", int64_t{1}}},
                           {b.input("x", {3, 4}), b.parameter("w", {8, 4})});
  CaseGraph c = b.finish(b.one("y", "Gelu", {{"approximate", std::string("tanh")}}, {h}));
  fuse_products(c.graph);
  ASSERT_EQ(count_of(c.graph, "GemmGelu"), 1);
  EXPECT_EQ(c.graph.node(0).outputs[1], kNoTensor);
}

// cuBLASLt's GELU is the tanh form. The exact form is only in cuDNN, so it is fused only for a GPU.
// The numbers are those of the separate nodes.
TEST(PassFuse, PutsTheExactGeluIntoProductsOnlyForAGpu) {
  const auto cpu = make_cpu_backend(2);
  const auto& cases = testing::graph_cases();
  const auto test = std::ranges::find(cases, "GemmGelu/exact", &testing::GraphCase::name);
  ASSERT_NE(test, cases.end());
  std::map<TensorId, TensorId> gradients;
  const CaseGraph c = testing::with_gradients(test->build(DType::kF32), &gradients);
  RunOptions options = real_job(true);
  std::vector<CaseResult> results;
  for (const Processor processor : {Processor::kCpu, Processor::kGpu}) {
    options.processor = processor;
    results.push_back(testing::run_case(c, *cpu, options));
    const bool gpu = processor == Processor::kGpu;
    const Graph& graph = results.back().program.graph;
    EXPECT_EQ(count_of(graph, "GemmGelu") + count_of(graph, "GeluGemmGrad"), gpu ? 2 : 0);
    EXPECT_EQ(count_of(graph, "Gelu") + count_of(graph, "GeluGrad"), gpu ? 0 : 2);
  }
  expect_same_bits(results[1], results[0]);
}

// Program outputs are not fused away.
TEST(PassFuse, LeavesOtherGelusAndMarkedNodes) {
  for (const bool exact : {true, false}) {
    CaseBuilder b(DType::kF32);
    const TensorId h = b.one("h", "Gemm", {{"transB", int64_t{1}}},
                             {b.input("x", {3, 4}), b.parameter("w", {8, 4})});
    const std::string form = exact ? "none" : "tanh";
    CaseGraph c = b.finish(b.one("y", "Gelu", {{"approximate", form}}, {h}));
    c.graph.mark_output(h);
    fuse_products(c.graph);
    c.graph.verify();
    EXPECT_EQ(count_of(c.graph, "GemmGelu"), exact ? 0 : 1);
    EXPECT_NE(c.graph.tensor(h).producer, kNoNode);
  }
}

TEST(PassFuse, ProductsAndSumsChangeNoBitOnTheCpu) {
  const auto cpu = make_cpu_backend(2);
  for (const bool dropped : {false, true}) {
    const CaseGraph c = positions_net(3, dropped);
    for (const auto& [precision, recompute] : {std::pair(Precision::kFp32, Recompute::kNone),
                                               std::pair(Precision::kFp32, Recompute::kBlocks),
                                               std::pair(Precision::kBf16, Recompute::kNone),
                                               std::pair(Precision::kBf16, Recompute::kBlocks)}) {
      SCOPED_TRACE(std::string(name_of(precision)) + " " + std::string(name_of(recompute)) +
                   (dropped ? " dropped" : ""));
      RunOptions options = real_job(true);
      options.precision = precision;
      options.recompute = recompute;
      const CaseResult fused = testing::run_case(c, *cpu, options);
      options.passes.fuse = false;
      const CaseResult plain = testing::run_case(c, *cpu, options);
      // With recompute by blocks, only the last sum is computed again, for the gradient of its
      // normalization.
      const bool again = dropped && recompute == Recompute::kBlocks;
      EXPECT_EQ(count_of(fused.program.graph, "Dropout"), again ? 1 : 0);
      EXPECT_EQ(count_of(fused.program.graph, "DropoutGrad"), 0);
      EXPECT_GE(count_of(fused.program.graph, "GemmGelu"), 3);
      EXPECT_EQ(count_of(plain.program.graph, "GemmGelu"), 0);
      expect_same_bits(fused, plain);
      // Fusion changes the packing, and the 16-bit copies of the weights live from the start of the
      // step.
      EXPECT_LE(fused.planned_bytes, plain.planned_bytes * 103 / 100);
      EXPECT_EQ(fused.planned_bytes, fused.used_bytes);
    }
  }
}

/// Returns a head whose rows are positions, its loss by `make_loss(builder, scores)`, and the
/// gradients.
CaseGraph head(const std::function<std::vector<TensorId>(CaseBuilder&, TensorId)>& make_loss,
               const std::function<void(Graph&, TensorId)>& inspect = {}) {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {6, 4})});
  const TensorId y = b.one("y", "Gemm", {{"transB", int64_t{1}}},
                           {x, b.parameter("w", {5, 4}), b.parameter("b", {5})});
  const TensorId seen = b.one("seen", "Reshape", {{"shape", Ints{2, 3, 5}}}, {y});
  const TensorId z = b.one("z", "Reshape", {{"shape", Ints{6, 5}}}, {seen});
  const std::vector<TensorId> loss = make_loss(b, z);
  CaseGraph c = b.finish_with_loss(loss[0]);
  std::map<TensorId, TensorId> gradients;
  c = testing::with_gradients(std::move(c), &gradients);
  if (inspect) inspect(c.graph, seen);
  return c;
}
std::vector<TensorId> cross_entropy(CaseBuilder& b, TensorId z) {
  return b.node("loss", "SoftmaxCrossEntropyLoss", {{"ignore_index", int64_t{2}}},
                {z, b.labels("labels", 6, 5)}, 2);
}

// Fails if a pass leaves the scores in the graph, where a plan or an evaluation would see them.
TEST(PassHead, FusesHeadAndLossOnlyForAGpu) {
  for (const Processor processor : {Processor::kCpu, Processor::kGpu}) {
    CaseGraph c = head(cross_entropy);
    run_passes(c.graph, {}, Recompute::kNone, Precision::kFp32, processor);
    c.graph.verify();
    const bool gpu = processor == Processor::kGpu;
    EXPECT_EQ(count_of(c.graph, "GemmSoftmaxCrossEntropyLoss"), gpu ? 1 : 0);
    EXPECT_EQ(count_of(c.graph, "Gemm") + count_of(c.graph, "GemmGrad"), gpu ? 0 : 2);
    EXPECT_EQ(count_of(c.graph, "Reshape") + count_of(c.graph, "ReshapeGrad"), gpu ? 0 : 4);
    EXPECT_EQ(count_of(c.graph, "SoftmaxCrossEntropyLoss"), gpu ? 0 : 1);
    for (const TensorInfo& t : c.graph.tensors()) {
      if (!gpu || t.role != Role::kActivation) continue;
      EXPECT_NE(t.type.shape, Shape({6, 5})) << t.name;
    }
  }
  CaseGraph without = head(cross_entropy);
  run_passes(without.graph, {.fuse = false}, Recompute::kNone, Precision::kFp32, Processor::kGpu);
  EXPECT_EQ(count_of(without.graph, "GemmSoftmaxCrossEntropyLoss"), 0);
}

TEST(PassHead, LeavesNodesWithOtherReadersAndOtherLosses) {
  const auto divergence = [](CaseBuilder& b, TensorId z) {
    return b.node("loss", "KullbackLeiblerDivergence", {{"label_smoothing", 0.25}},
                  {z, b.labels("labels", 6, 5)}, 2);
  };
  const auto shares = [](CaseBuilder& b, TensorId z) {
    const TensorId t = b.one("shares", "Softmax", {}, {b.input("any", {6, 5})});
    return b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, t}, 2);
  };
  const auto scaled = [](CaseBuilder& b, TensorId z) {  // the scores are not the product itself
    return cross_entropy(b, b.one("scaled", "Tanh", {}, {z}));
  };
  const auto regularised = [](CaseBuilder& b, TensorId z) {  // the step reads the loss
    const TensorId loss = cross_entropy(b, z)[0];
    return std::vector{b.one("twice", "Add", {}, {loss, loss})};
  };
  const auto read_twice = [](CaseBuilder& b, TensorId z) {
    const TensorId loss = cross_entropy(b, z)[0];
    const TensorId other = b.one("other", "MeanSquaredError", {}, {z, b.input("wanted", {6, 5})});
    return std::vector{b.one("both", "Add", {}, {loss, other})};
  };
  const auto marked = [](Graph& graph, TensorId seen) { graph.mark_output(seen); };
  const auto marked_prob = [](Graph& graph, TensorId) {
    graph.mark_output(graph.find_tensor("loss.1").value());
  };
  int k = 0;
  for (CaseGraph& c : std::vector<CaseGraph>{
           head(divergence), head(shares), head(scaled), head(regularised), head(read_twice),
           head(cross_entropy, marked), head(cross_entropy, marked_prob)}) {
    SCOPED_TRACE(k++);
    const std::string before = c.graph.dump();
    fuse_head(c.graph, Processor::kGpu);
    EXPECT_EQ(c.graph.dump(), before);
  }
}

// The CPU runs the fused node by the kernels of its parts, so a GPU's plan can be computed
// anywhere.
TEST(PassHead, ChangesNoBitOnTheCpu) {
  const auto cpu = make_cpu_backend(2);
  const CaseGraph c = head(cross_entropy);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(name_of(precision));
    RunOptions options = real_job(true);
    options.precision = precision;
    const CaseResult plain = testing::run_case(c, *cpu, options);
    options.processor = Processor::kGpu;
    const CaseResult fused = testing::run_case(c, *cpu, options);
    EXPECT_EQ(count_of(fused.program.graph, "GemmSoftmaxCrossEntropyLoss"), 1);
    EXPECT_EQ(count_of(plain.program.graph, "GemmSoftmaxCrossEntropyLoss"), 0);
    expect_same_bits(fused, plain);
    EXPECT_LT(fused.program.transient_bytes, plain.program.transient_bytes);
  }
}

/// Returns a step of two dense layers with AdamW's updates. Parameter b.bias is frozen, and both
/// layers together update w.
CaseGraph adamw_step() {
  CaseBuilder b(DType::kF32);
  const Attributes transposed{{"transB", int64_t{1}}};
  const TensorId h = b.one(
      "a", "Gemm", transposed,
      {b.input("x", {6, 300}), b.parameter("a.weight", {300, 300}), b.parameter("a.bias", {300})});
  const TensorId w = b.parameter("w", {300, 300});
  const TensorId y = b.one("b", "Gemm", transposed, {b.one("tanh", "Tanh", {}, {h}), w});
  const TensorId z = b.one("c", "Gemm", transposed,
                           {b.one("tanh2", "Tanh", {}, {y}), w, b.parameter("b.bias", {300})});
  const TensorId rate = b.input_f32("learning_rate", 0.125), step = b.step(0);
  std::map<std::string, std::vector<TensorId>> states;
  for (const char* name : {"a.weight", "a.bias", "w"}) {
    const Shape shape = b.graph().tensor(*b.graph().find_tensor(name)).type.shape;
    for (const char* state : {".m", ".v"}) {
      states[name].push_back(b.optimizer_state(name + std::string(state), shape));
    }
  }
  std::map<TensorId, TensorId> gradients;
  CaseGraph c = testing::with_gradients(b.finish(b.one("d", "Tanh", {}, {z})), &gradients);
  for (const auto& [name, state] : states) {
    const TensorId p = *c.graph.find_tensor(name);
    c.graph
        .add_node(name + "/update", get_op("AdamWUpdate"), {},
                  {p, gradients.at(p), rate, step, state[0], state[1]}, {}, Phase::kUpdate)
        .value();
  }
  return c;
}

// Fails if a step casts a parameter again whose update could have written the copy.
TEST(PassCopies, UpdatesWriteTheCopiesThatProductsRead) {
  for (const Processor processor : {Processor::kCpu, Processor::kGpu}) {
    CaseGraph c = adamw_step();
    run_passes(c.graph, {}, Recompute::kNone, Precision::kBf16, processor);
    c.graph.verify();
    std::set<std::string> cast, copied;
    for (const Node& node : c.graph.nodes()) {
      if (node.op->type() == "Cast") cast.insert(c.graph.tensor(node.inputs[0]).name);
      if (written_copy(c.graph, node)) copied.insert(c.graph.tensor(node.inputs[0]).name);
    }
    if (processor == Processor::kCpu) {
      EXPECT_EQ(cast, (std::set<std::string>{"x", "a.weight", "w"}));
      EXPECT_EQ(copied, std::set<std::string>());
      continue;
    }
    EXPECT_EQ(cast, (std::set<std::string>{"x", "b.bias"}));
    EXPECT_EQ(copied, (std::set<std::string>{"a.weight", "a.bias", "w"}));
  }
  CaseGraph without = adamw_step();
  run_passes(without.graph, {.copies = false}, Recompute::kNone, Precision::kBf16, Processor::kGpu);
  EXPECT_EQ(count_of(without.graph, "Cast"), 5);
}

// Several steps with copies from the step before, against steps that cast anew. The first step
// reads the copies that Executor::write() made.
TEST(PassCopies, ChangesNoBit) {
  const auto cpu = make_cpu_backend(2);
  const CaseGraph c = adamw_step();
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    std::vector<std::map<std::string, std::vector<double>>> results;
    for (const bool copies : {false, true}) {
      PassOptions passes;
      passes.copies = copies;
      PreparedProgram prepared(
          compile(c.graph,
                  {.precision = precision, .passes = passes, .processor = Processor::kGpu}),
          *cpu);
      Arena arena(*cpu, prepared.program().persistent_bytes, prepared.program().transient_bytes,
                  prepared.workspace_bytes());
      Executor executor(std::move(prepared), arena);
      for (const auto& [id, values] : c.values) testing::write_values(executor, id, values);
      for (int step = 0; step < 3; ++step) executor.run();
      auto& values = results.emplace_back();
      for (const char* name : {"a.weight", "a.bias", "w", "w.m"}) {
        values[name] = testing::read_values(executor, *c.graph.find_tensor(name));
      }
    }
    EXPECT_EQ(results[0], results[1]) << name_of(precision);
  }
}

// A copy takes the memory that the result of the cast took: 2 bytes an element.
TEST(PassCopies, AreCountedWithTheActivations) {
  const CaseGraph c = adamw_step();
  CompileOptions options{.precision = Precision::kBf16, .processor = Processor::kGpu};
  const Program kept = compile(c.graph, options);
  options.passes.copies = false;
  const Program cast = compile(c.graph, options);
  verify(kept);
  EXPECT_EQ(kept.persistent_bytes - cast.persistent_bytes,
            2 * round_up(2 * 300 * 300, kHostAlignment) + round_up(2 * 300, kHostAlignment));
  EXPECT_EQ(kept.memory.parameter_bytes, cast.memory.parameter_bytes);
  EXPECT_EQ(kept.memory.optimizer_bytes, cast.memory.optimizer_bytes);
  EXPECT_EQ(kept.memory.total(), kept.persistent_bytes + kept.transient_bytes);
}

TEST(PassRecompute, ClonesPrecedeTheirReaders) {
  CaseGraph c = blocks(DType::kF32, 2);
  fuse(c.graph);
  recompute_activations(c.graph, Recompute::kBlocks);
  c.graph.verify();
  testing::expect_golden("pass_recompute.txt", c.graph.dump());
  EXPECT_GT(count_of(c.graph, "BatchNormalizationReplay"), 0);
}

TEST(PassRecompute, ChangesNoBitAndSavesMemory) {
  const CaseGraph c = blocks(DType::kF32, 9);
  const auto cpu = make_cpu_backend(2);
  for (const bool fuses : {true, false}) {
    for (const bool channels_last : {true, false}) {
      SCOPED_TRACE(channels_last ? "channels-last" : "row-major");
      RunOptions options = real_job(channels_last);
      options.passes.fuse = fuses;
      const CaseResult kept = testing::run_case(c, *cpu, options);
      options.recompute = Recompute::kBlocks;
      const CaseResult some = testing::run_case(c, *cpu, options);
      options.recompute = Recompute::kFull;
      const CaseResult most = testing::run_case(c, *cpu, options);
      expect_same_bits(some, kept);  // including running statistics
      expect_same_bits(most, kept);
      EXPECT_LT(some.program.transient_bytes, kept.program.transient_bytes * 3 / 4);
      EXPECT_LT(most.program.transient_bytes, kept.program.transient_bytes * 3 / 4);
      EXPECT_GT(some.program.flops, kept.program.flops);
      EXPECT_EQ(some.planned_bytes, some.used_bytes);
    }
  }
}

// The last tensor of a segment is kept. Its readers in the backward pass come before the recomputed
// nodes and must not be made to wait for them.
TEST(PassRecompute, DoesNotRecomputeANormalizationAtACut) {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  TensorId x = b.input("x", {6, 16});
  for (const std::string n : {"1", "2", "3"}) {
    x = b.one("fc" + n, "Gemm", trans_b, {x, b.parameter("w" + n, {16, 16})});
    x = b.one("gelu" + n, "Gelu", {}, {x});
    x = b.node("norm" + n, "LayerNormalization", {}, {x, b.parameter("scale" + n, {16})}, 3)[0];
  }
  std::map<TensorId, TensorId> gradients;
  const CaseGraph c = testing::with_gradients(b.finish(x), &gradients);
  const auto cpu = make_cpu_backend(1);
  RunOptions options = real_job(true);
  const CaseResult kept = testing::run_case(c, *cpu, options);
  options.recompute = Recompute::kBlocks;
  const CaseResult again = testing::run_case(c, *cpu, options);
  expect_same_bits(again, kept);
  EXPECT_EQ(count_of(again.program.graph, "Gelu"), 6) << "once more in each segment";
  EXPECT_EQ(count_of(again.program.graph, "LayerNormalization"), 3) << "their sums are kept";
}

// Gated dense networks: act(gate) * up, each followed by another product.
CaseGraph gated_net(int count, const std::string& act) {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  TensorId x = b.one("in", "Gemm", trans_b, {b.input("x", {37, 5}), b.parameter("w", {8, 5})});
  for (int k = 1; k <= count; ++k) {
    const std::string name = "block" + std::to_string(k);
    const auto product = [&](const std::string& suffix, TensorId from, int64_t in, int64_t out) {
      return b.one(name + suffix, "Gemm", trans_b,
                   {from, b.parameter(name + suffix + ".weight", {out, in})});
    };
    const TensorId gate = b.one(name + ".act", act, {}, {product(".gate", x, 8, 24)});
    const TensorId up = product(".up", x, 8, 24);
    TensorId gated = b.one(name + ".gated", "Mul", {}, {gate, up});
    if (k % 2 == 0)
      gated = b.one(name + ".rows", "Reshape", {{"shape", Shape{37, 24}.dims()}}, {gated});
    x = b.one(name + ".add", "Add", {}, {x, product(".down", gated, 24, 8)});
  }
  std::map<TensorId, TensorId> gradients;
  return testing::with_gradients(b.finish(x), &gradients);
}

TEST(PassGates, AreComputedAgainForTheirGradient) {
  for (const std::string act : {"Swish", "Gelu"}) {
    CaseGraph c = gated_net(3, act);
    recompute_gates(c.graph);
    c.graph.verify();
    EXPECT_EQ(count_of(c.graph, act), 6);
    for (const Node& node : c.graph.nodes()) {
      if (node.op->type() != "MulGrad") continue;
      EXPECT_TRUE(c.graph.tensor(node.inputs[0]).name.ends_with(".act/again"));
    }
    EXPECT_EQ(count_of(c.graph, "Mul"), 6);
    for (int k = 1; k <= 3; ++k) {
      const std::string name = "block" + std::to_string(k) + (k % 2 == 0 ? ".rows" : ".gated");
      const TensorId product = c.graph.find_tensor(name).value();
      for (const Node& node : c.graph.nodes()) {
        EXPECT_FALSE(node.phase == Phase::kBackward &&
                     std::ranges::count(node.inputs, product) > 0);
      }
    }
  }
  // The gradient of Sigmoid keeps y, not x.
  CaseGraph sigmoid = gated_net(3, "Sigmoid");
  recompute_gates(sigmoid.graph);
  EXPECT_EQ(count_of(sigmoid.graph, "Sigmoid"), 3);
}

TEST(PassGates, ThatOthersReadAreKept) {
  CaseGraph c = gated_net(2, "Swish");
  c.graph.mark_output(c.graph.find_tensor("block1.act").value());
  recompute_gates(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_of(c.graph, "Swish"), 3);
  c = gated_net(2, "Swish");
  c.graph.mark_output(c.graph.find_tensor("block1.gated").value());
  recompute_gates(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_of(c.graph, "Mul"), 3);
}

TEST(PassGates, ChangeNoBitAndSaveMemory) {
  const auto cpu = make_cpu_backend(2);
  const CaseGraph c = gated_net(4, "Swish");
  RunOptions options = real_job(/*channels_last=*/false);
  const CaseResult with = testing::run_case(c, *cpu, options);
  options.passes.fuse = false;
  const CaseResult without = testing::run_case(c, *cpu, options);
  expect_same_bits(with, without);
  // Three of the four gates, and of their products, need not be kept: but for padding, that many.
  EXPECT_LE(with.program.transient_bytes, without.program.transient_bytes - 5 * 37 * 24 * 4);
}

TEST(PassFold, ConstantsBecomeOne) {
  CaseBuilder b(DType::kF32);
  const auto constant = [&](const std::string& name, double value) {
    return b.one(name, "ConstantOfShape",
                 {{"shape", Ints{2, 3}}, {"value", value}, {"dtype", std::string("F32")}}, {});
  };
  const TensorId sum = b.one("sum", "Add", {}, {constant("one", 0.1), constant("two", 0.2)});
  const TensorId wide = b.one("wide", "Reshape", {{"shape", Ints{3, 2}}}, {sum});
  const TensorId y = b.one("y", "Add", {}, {wide, b.parameter("p", {3, 2})});
  CaseGraph c = b.finish(y);
  fold_constants(c.graph);
  c.graph.verify();
  remove_dead_code(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_of(c.graph, "ConstantOfShape"), 1);
  EXPECT_EQ(count_of(c.graph, "Reshape"), 0);
  const Node& folded = c.graph.node(c.graph.tensor(wide).producer);
  EXPECT_EQ(folded.attributes.get_float("value", 0), static_cast<double>(0.1f + 0.2f));
}

TEST(PassDeadCode, DropsUnusedNodesAndKeepsUpdates) {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.input("x", {4, 3});
  b.one("unused", "Tanh", {}, {b.one("also_unused", "Relu", {}, {x})});
  b.node(
      "statistics", "BatchNormalization", {{"training_mode", int64_t{1}}},
      {x, b.parameter("s", {3}), b.parameter("b", {3}), b.state("m", {3}, 0), b.state("v", {3}, 1)},
      3);
  CaseGraph c = b.finish(b.one("y", "Gelu", {}, {b.parameter("p", {4, 3})}));
  const TensorId unused = c.graph.find_tensor("unused").value();
  remove_dead_code(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_of(c.graph, "Tanh") + count_of(c.graph, "Relu"), 0);
  EXPECT_EQ(count_of(c.graph, "BatchNormalization"), 1);
  EXPECT_EQ(c.graph.tensor(unused).role, Role::kRemoved);
  EXPECT_FALSE(c.graph.find_tensor("unused").has_value());
  EXPECT_EQ(c.graph.dump().find("unused"), std::string::npos);
}

TEST(PassOptions, AreSwitchedOffByName) {
  ASSERT_EQ(::setenv("TRAINYARD_WITHOUT_PASSES", "fuse,layouts", 1), 0);
  const PassOptions passes = default_passes();
  EXPECT_FALSE(passes.fuse);
  EXPECT_FALSE(passes.layouts);
  EXPECT_TRUE(passes.fold && passes.dead_code);
  ASSERT_EQ(::setenv("TRAINYARD_WITHOUT_PASSES", "fusion", 1), 0);
  EXPECT_THROW(default_passes(), InvariantError);
  ::unsetenv("TRAINYARD_WITHOUT_PASSES");
}

// On random graphs, results with all passes equal those without, results with recomputed tensors
// equal those with kept ones, and every byte of the plan is used.
TEST(PassRandom, ResultsAgreeAndThePlanIsExact) {
  const auto cpu = make_cpu_backend(2);
  for (uint64_t seed = 0; seed < kRandomGraphs; ++seed) {
    SCOPED_TRACE(seed);
    const CaseGraph c = testing::random_training_graph(seed, DType::kF32);
    for (const bool channels_last : {true, false}) {
      RunOptions options = real_job(channels_last);
      options.runs = 1;
      const CaseResult all = testing::run_case(c, *cpu, options);
      EXPECT_EQ(all.planned_bytes, all.used_bytes);
      options.recompute = seed % 2 == 0 ? Recompute::kBlocks : Recompute::kFull;
      const CaseResult again = testing::run_case(c, *cpu, options);
      EXPECT_EQ(again.planned_bytes, again.used_bytes);
      expect_same_bits(again, all);
      options.recompute = Recompute::kNone;
      options.passes.fold = options.passes.dead_code = options.passes.fuse = false;
      expect_same_bits(testing::run_case(c, *cpu, options), all);
    }
  }
}

}  // namespace
}  // namespace trainyard
