// Compares the cpu backend with the reference loops in double, for every op, gradient and update:
// on the table of small cases, and on sizes at which kernels split their work over threads. All
// memory starts as NaN, to catch a kernel that does not write all elements.
#include <gtest/gtest.h>

#include <cmath>

#include "src/graph/op.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;
using testing::CaseResult;
using testing::graph_cases;
using testing::GraphCase;
using testing::RunOptions;
using Ints = std::vector<int64_t>;

// Float against double: sums of up to a few thousand terms of order 1 are exact to 5 digits of the
// tensor's largest value; errors grow through the layers of a case.
constexpr double kRelativeMax = 3e-5;

// In bf16 both backends round the same way (precision_test.cc), but where their sums differ in the
// last bit of a float, one may round up and the other down. The difference is 2^-8 of the element
// each time, and later layers propagate it.
constexpr double kRelativeMaxBf16 = 8.0 / 256;

void expect_parity(const CaseResult& actual, const CaseResult& expected, double relative_max) {
  EXPECT_EQ(actual.used_bytes, actual.planned_bytes);
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

void check_case(const GraphCase& test) {
  std::map<TensorId, TensorId> gradients;
  CaseGraph narrow = test.build(DType::kF32), wide = test.build(DType::kF64);
  if (narrow.loss != kNoTensor) {
    narrow = testing::with_gradients(std::move(narrow), &gradients);
    wide = testing::with_gradients(std::move(wide), &gradients);
  }
  const auto reference = make_reference_backend();
  for (const bool channels_last : {true, false}) {
    // The values that the program keeps are a subset of all values, so one run in double serves
    // both.
    const CaseResult expected = testing::run_case(wide, *reference, {channels_last});
    for (const bool keep_all : {true, false}) {
      const RunOptions options{channels_last, keep_all, /*runs=*/2};
      for (const int threads : {1, 2, 3}) {
        SCOPED_TRACE(test.name + " threads=" + std::to_string(threads) +
                     (channels_last ? " channels-last" : " row-major") +
                     (keep_all ? " kept" : " reused"));
        const auto cpu = make_cpu_backend(threads);
        expect_parity(testing::run_case(narrow, *cpu, options), expected, kRelativeMax);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuParity, EveryCaseOfTheTableInBf16) {
  const auto reference = make_reference_backend();
  for (const GraphCase& test : graph_cases()) {
    std::map<TensorId, TensorId> gradients;
    CaseGraph c = test.build(DType::kF32);
    if (c.loss != kNoTensor) c = testing::with_gradients(std::move(c), &gradients);
    for (const bool channels_last : {true, false}) {
      for (const bool keep_all : {true, false}) {
        SCOPED_TRACE(test.name + (channels_last ? " channels-last" : " row-major") +
                     (keep_all ? " kept" : " reused"));
        RunOptions options{channels_last, keep_all};
        options.precision = Precision::kBf16;
        const CaseResult expected = testing::run_case(c, *reference, options);
        options.runs = 2;
        for (const int threads : {1, 3}) {
          const auto cpu = make_cpu_backend(threads);
          expect_parity(testing::run_case(c, *cpu, options), expected, kRelativeMaxBf16);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(CpuBackend, HasAKernelForEveryOp) {
  const auto cpu = make_cpu_backend(1);
  for (const Op* op : all_ops()) EXPECT_TRUE(cpu->has_kernel(op->type())) << op->type();
}

TEST(CpuBackend, RefusesZeroThreads) { EXPECT_THROW(make_cpu_backend(0), InvariantError); }

TEST(CpuParity, EveryCaseOfTheTable) {
  for (const GraphCase& test : graph_cases()) {
    check_case(test);
    if (HasFatalFailure()) return;
  }
}

CaseGraph mlp(DType dtype, int64_t N, int64_t F, int64_t hidden, int64_t K,
              std::string activation) {
  CaseBuilder b(dtype);
  const Attributes transposed{{"transB", int64_t{1}}};
  const TensorId h =
      b.one("h", "Gemm", transposed,
            {b.input("x", {N, F}), b.parameter("w1", {hidden, F}), b.parameter("b1", {hidden})});
  const TensorId a = b.one("a", activation, {}, {h});
  const TensorId h2 = b.one("h2", "Gemm", transposed,
                            {a, b.parameter("w2", {hidden, hidden}), b.parameter("b2", {hidden})});
  const TensorId sum = b.one("sum", "Add", {}, {a, h2});
  const TensorId dropped =
      b.one("dropped", "Dropout", {{"ratio", 0.3}, {"seed", int64_t{5}}, {"stream", int64_t{9}}},
            {sum, b.step(12345678901)});
  const TensorId z = b.one("z", "Gemm", transposed, {dropped, b.parameter("w3", {K, hidden})});
  return b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, b.labels("labels", N, K)}, 2)[0]);
}

CaseGraph conv_net(DType dtype, int64_t N, int64_t C, int64_t K) {
  CaseBuilder b(dtype);
  const Attributes same{{"pads", Ints{1, 1, 1, 1}}};
  const TensorId x = b.image("x", {N, C, 14, 13});
  // There is no bias: before a normalization its gradient is 0, so only rounding errors would be
  // compared.
  const TensorId h = b.one("h", "Conv", same, {x, b.parameter("w1", {K, C, 3, 3})});
  const TensorId n = b.node("n", "BatchNormalization", {{"training_mode", int64_t{1}}},
                            {h, b.parameter("scale", {K}), b.parameter("shift", {K}),
                             b.state("mean", {K}, 0.0), b.state("var", {K}, 1.0)},
                            3)[0];
  const TensorId r = b.one("r", "Relu", {}, {n});
  const TensorId p =
      b.one("p", "AveragePool", {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}, {r});
  const TensorId h2 =
      b.one("h2", "Conv", {}, {p, b.parameter("w2", {K, K, 5, 5}), b.parameter("b2", {K})});
  const TensorId m = b.one("m", "MaxPool", {{"kernel_shape", Ints{2, 2}}}, {h2});
  return b.finish(b.one("flat", "Flatten", {}, {m}));
}

CaseGraph update(DType dtype, const std::string& op, int64_t count) {
  CaseBuilder b(dtype);
  const TensorId p = b.parameter("p", {count}), g = b.input("g", {count});
  const TensorId rate = b.input_f32("rate", 0.125);
  if (op == "SgdUpdate") {
    b.node("update", op, {{"momentum", 0.9}, {"nesterov", int64_t{1}}, {"weight_decay", 0.01}},
           {p, g, rate, b.optimizer_state("v", {count})}, 0, Phase::kUpdate);
  } else {
    b.node(
        "update", op, {{"weight_decay", 0.01}},
        {p, g, rate, b.step(41), b.optimizer_state("m", {count}), b.optimizer_state("v", {count})},
        0, Phase::kUpdate);
  }
  return b.finish_update();
}

// Returns an embedding table, positions, one attention block on a residual stream, and pooling. T
// must exceed one tile of queries.
CaseGraph transformer(DType dtype, int64_t N, int64_t T, int64_t H, int64_t D, bool causal) {
  CaseBuilder b(dtype);
  const int64_t width = H * D, rows = N * T;
  const Attributes transposed{{"transB", int64_t{1}}};
  const TensorId tokens = b.tokens("tokens", {N, T}, 41);
  const TensorId e = b.one("e", "Gather", {}, {b.parameter("table", {41, width}), tokens});
  const TensorId x = b.one("x", "PositionEmbedding", {}, {e, b.parameter("position", {T, width})});
  const TensorId n = b.node("n", "LayerNormalization", {},
                            {x, b.parameter("scale", {width}), b.parameter("b", {width})}, 3)[0];
  const TensorId flat = b.one("flat", "Reshape", {{"shape", Ints{rows, width}}}, {n});
  const TensorId product =
      b.one("product", "Gemm", transposed, {flat, b.parameter("w", {3 * width, width})});
  const TensorId qkv = b.one("qkv", "Reshape", {{"shape", Ints{N, T, 3 * width}}}, {product});
  // The weights are large: this scale keeps the softmax from selecting a single key.
  const TensorId a =
      b.node("a", "Attention",
             {{"q_num_heads", H}, {"is_causal", int64_t{causal}}, {"scale", 0.01}}, {qkv}, 2)[0];
  const TensorId sum = b.one("sum", "Add", {}, {x, a});
  const TensorId r =
      b.node("r", "RMSNormalization", {}, {sum, b.parameter("scale2", {width})}, 2)[0];
  return b.finish(b.one("y", "SequencePool", {{"mode", std::string("mean")}}, {r, tokens}));
}

// Returns two recurrent layers over one sequence, one in each direction.
CaseGraph recurrent(DType dtype, const std::string& op, int64_t N, int64_t T, int64_t F,
                    int64_t H) {
  CaseBuilder b(dtype);
  const int64_t GH = (op == "LSTM" ? 4 : 3) * H;
  const TensorId x = b.input("x", {N, T, F});
  const auto layer = [&](const std::string& name) {
    return b.node(name, op, {{"direction", name}},
                  {x, b.parameter("w_" + name, {GH, F}), b.parameter("r_" + name, {GH, H}),
                   b.parameter("wb_" + name, {GH}), b.parameter("rb_" + name, {GH})},
                  4);
  };
  const auto forward = layer("forward"), reverse = layer("reverse");
  const TensorId sum = b.one("sum", "Add", {}, {forward[0], reverse[0]});
  return b.finish(b.one("flat", "Reshape", {{"shape", Ints{N * T, H}}}, {sum}));
}

TEST(CpuParity, SequencesThatAreSplitOverThreads) {
  const std::vector<GraphCase> cases = {
      {"LSTM 19x6x70x67", [](DType t) { return recurrent(t, "LSTM", 19, 6, 70, 67); }},
      {"GRU 19x6x70x67", [](DType t) { return recurrent(t, "GRU", 19, 6, 70, 67); }},
      // In these cases the product with x, which is computed before the steps, exceeds the cache.
      {"LSTM 3x2x700x150", [](DType t) { return recurrent(t, "LSTM", 3, 2, 700, 150); }},
      {"GRU 3x2x700x150", [](DType t) { return recurrent(t, "GRU", 3, 2, 700, 150); }},
      {"causal 3x70x2x17", [](DType t) { return transformer(t, 3, 70, 2, 17, true); }},
      {"both ways 1x131x1x64", [](DType t) { return transformer(t, 1, 131, 1, 64, false); }},
      {"causal 1x130x3x33", [](DType t) { return transformer(t, 1, 130, 3, 33, true); }},
  };
  for (const GraphCase& test : cases) {
    check_case(test);
    if (HasFatalFailure()) return;
  }
}

CaseGraph matrix_update(DType dtype, const std::string& op, const Shape& shape) {
  CaseBuilder b(dtype);
  const TensorId p = b.parameter("p", shape), g = b.input("g", shape);
  const TensorId rate = b.input_f32("rate", 0.125);
  if (op == "MuonUpdate") {
    b.node("update", op, {}, {p, g, rate, b.optimizer_state("m", shape)}, 0, Phase::kUpdate);
  } else {
    b.node("update", op, {},
           {p, g, rate, b.step(41), b.optimizer_state("column", {shape[1]}),
            b.optimizer_state("row", {shape[0]})},
           0, Phase::kUpdate);
  }
  return b.finish_update();
}

CaseGraph large_norm(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId g1 = b.input("g1", {100'003}), g2 = b.input("g2", {70'001});
  const auto norm =
      b.node("norm", "GradientNorm", {{"max_norm", 1.5}}, {g1, g2}, 2, Phase::kUpdate);
  b.node("clipped", "ClipGradient", {{"bound", 0.1}}, {g1, norm[1]}, 1, Phase::kUpdate);
  return b.finish_update();
}

CaseGraph group_norm(DType dtype, const Shape& x, int64_t groups) {
  CaseBuilder b(dtype);
  return b.finish(b.node("y", "GroupNormalization", {{"num_groups", groups}},
                         {b.image("x", x), b.parameter("scale", {x[1]}), b.parameter("b", {x[1]})},
                         3)[0]);
}

TEST(CpuParity, SizesThatAreSplitOverThreads) {
  for (const std::string activation : {"Relu", "Sigmoid", "Tanh", "Gelu"}) {
    check_case(
        {"mlp 64-" + activation, [&](DType t) { return mlp(t, 64, 200, 130, 10, activation); }});
    if (HasFatalFailure()) return;
  }
  const std::vector<GraphCase> cases = {
      {"mlp 33x1025x31", [](DType t) { return mlp(t, 33, 1025, 31, 33, "Relu"); }},
      {"mlp 1x31x1025", [](DType t) { return mlp(t, 1, 31, 1025, 2, "Tanh"); }},
      {"mlp 130 classes 1025", [](DType t) { return mlp(t, 130, 33, 64, 1025, "Relu"); }},
      {"conv 9x3x20", [](DType t) { return conv_net(t, 9, 3, 20); }},
      {"conv 4x33x31", [](DType t) { return conv_net(t, 4, 33, 31); }},
      {"group norm 1x34x23x29",
       [](DType t) {
         return group_norm(t, {1, 34, 23, 29}, 17);
       }},
      {"conv 3x1x65", [](DType t) { return conv_net(t, 3, 1, 65); }},
      {"SgdUpdate 100003", [](DType t) { return update(t, "SgdUpdate", 100'003); }},
      {"AdamUpdate 100003", [](DType t) { return update(t, "AdamUpdate", 100'003); }},
      {"AdamWUpdate 100003", [](DType t) { return update(t, "AdamWUpdate", 100'003); }},
      {"AdafactorUpdate 301x333",
       [](DType t) {
         return matrix_update(t, "AdafactorUpdate", {301, 333});
       }},
      {"AdafactorUpdate 70001x2",
       [](DType t) {
         return matrix_update(t, "AdafactorUpdate", {70'001, 2});
       }},
      {"MuonUpdate 97x203",
       [](DType t) {
         return matrix_update(t, "MuonUpdate", {97, 203});
       }},
      {"MuonUpdate 203x97",
       [](DType t) {
         return matrix_update(t, "MuonUpdate", {203, 97});
       }},
      {"GradientNorm 170004", large_norm},
  };
  for (const GraphCase& test : cases) {
    check_case(test);
    if (HasFatalFailure()) return;
  }
}

// Two runs, and two backends with the same number of threads, give the same bits, whatever the
// memory contained before.
TEST(CpuBackend, SameThreadsGiveTheSameBits) {
  std::map<TensorId, TensorId> gradients;
  for (const auto& build :
       {std::function<CaseGraph()>([] { return conv_net(DType::kF32, 9, 3, 20); }),
        std::function<CaseGraph()>([] { return transformer(DType::kF32, 3, 70, 2, 17, true); }),
        std::function<CaseGraph()>([] { return recurrent(DType::kF32, "LSTM", 7, 5, 70, 67); }),
        std::function<CaseGraph()>([] { return recurrent(DType::kF32, "GRU", 7, 5, 70, 67); }),
        std::function<CaseGraph()>([] { return mlp(DType::kF32, 64, 200, 130, 10, "Gelu"); })}) {
    const CaseGraph c = testing::with_gradients(build(), &gradients);
    for (const int threads : {1, 2, 3}) {
      const auto a = make_cpu_backend(threads), b = make_cpu_backend(threads);
      const CaseResult first = testing::run_case(c, *a, {.runs = 1});
      const CaseResult second = testing::run_case(c, *b, {.runs = 3});
      EXPECT_EQ(first.values, second.values) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace trainyard
