// The graph refuses what cannot run with a message that a user can act on, and throws for mistakes
// of the calling code.
#include "src/graph/graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/check.h"
#include "src/graph/op.h"

namespace trainyard {
namespace {

using Ints = std::vector<int64_t>;

TensorId add_input(Graph& g, const std::string& name, Shape shape, DType dtype = DType::kF32) {
  return g.add_tensor(
      {name, {std::move(shape), dtype}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
}

struct Refusal {
  std::string name;
  std::string op;
  Attributes attributes;
  std::vector<TensorType> inputs;
  std::string message;  // the complete text
};

TensorType f32(Shape shape) { return {std::move(shape), DType::kF32}; }

std::vector<Refusal> refusals() {
  const Attributes trans_b{{"transB", int64_t{1}}};
  return {
      {"GemmRank",
       "Gemm",
       trans_b,
       {f32({2, 3, 4}), f32({5, 12})},
       "fc: x: shape [2, 3, 4] has rank 3, expected rank 2"},
      {"GemmFeatures",
       "Gemm",
       trans_b,
       {f32({2, 3}), f32({5, 4})},
       "fc: w: shape [5, 4] takes 4 features, expected 3 as x [2, 3]"},
      {"GemmBias",
       "Gemm",
       trans_b,
       {f32({2, 3}), f32({5, 3}), f32({4})},
       "fc: b: shape [4], expected [5]"},
      {"GemmTransB",
       "Gemm",
       {},
       {f32({2, 3}), f32({5, 3})},
       "fc: transB: 0 is out of range, expected 1"},
      {"GemmEmpty",
       "Gemm",
       trans_b,
       {f32({0, 3}), f32({5, 3})},
       "fc: x: shape [0, 3], expected dimensions of at least 1"},
      {"GemmNoWeight", "Gemm", trans_b, {f32({2, 3})}, "fc: w: this input is required"},
      {"GemmTypes",
       "Gemm",
       trans_b,
       {f32({2, 3}), {{5, 3}, DType::kF64}},
       "fc: w: type F64, expected F32 as x"},
      {"ReluInteger", "Relu", {}, {{{2}, DType::kI32}}, "fc: x: type I32, expected F32 or F64"},
      {"ReluTwoInputs",
       "Relu",
       {},
       {f32({2}), f32({2})},
       "fc: inputs: 2 are given, expected at most 1"},
      {"UnknownAttribute",
       "Gelu",
       {{"aproximate", std::string("tanh")}},
       {f32({2})},
       "fc: aproximate: no such attribute; did you mean 'approximate'?"},
      {"GeluValue",
       "Gelu",
       {{"approximate", std::string("sigmoid")}},
       {f32({2})},
       "fc: approximate: 'sigmoid' is not known, expected 'none' or 'tanh'"},
      {"AddShapes",
       "Add",
       {},
       {f32({2, 3}), f32({3, 2})},
       "fc: b: shape [3, 2] does not broadcast with [2, 3] of a, expected sizes that are equal or "
       "1, from the last axis on"},
      {"FlattenAxis",
       "Flatten",
       {{"axis", int64_t{3}}},
       {f32({2, 3})},
       "fc: axis: 3 is out of range, expected -2..2"},
      {"ReshapeElements",
       "Reshape",
       {{"shape", Ints{4, -1}}},
       {f32({2, 3})},
       "fc: shape: [4, -1] does not hold the 6 elements of [2, 3]"},
      {"ReshapeTwoOpen",
       "Reshape",
       {{"shape", Ints{-1, -1}}},
       {f32({2, 3})},
       "fc: shape: [-1, -1] is not possible, expected sizes of at least 1 and at most one -1"},
      {"ReshapeHuge",
       "Reshape",
       {{"shape", Ints{int64_t{1} << 60, int64_t{1} << 60}}},
       {f32({2, 3})},
       "fc: shape: [1152921504606846976, 1152921504606846976] does not hold the 6 elements of [2, "
       "3]"},
      {"DropoutOne",
       "Dropout",
       {{"ratio", 1.0}},
       {f32({2}), {{1}, DType::kI64}},
       "fc: ratio: 1.000000 is out of range, expected 0 or more and less than 1"},
      {"DropoutNaN",
       "Dropout",
       {{"ratio", std::nan("")}},
       {f32({2}), {{1}, DType::kI64}},
       "fc: ratio: nan is out of range, expected 0 or more and less than 1"},
      {"DropoutNoRatio",
       "Dropout",
       {},
       {f32({2}), {{1}, DType::kI64}},
       "fc: ratio: this attribute is required"},
      {"DropoutStep",
       "Dropout",
       {{"ratio", 0.5}},
       {f32({2}), {{1}, DType::kI32}},
       "fc: step: type I32, expected I64"},
      {"OneClass",
       "SoftmaxCrossEntropyLoss",
       {},
       {f32({2, 1}), {{2}, DType::kI32}},
       "fc: logits: shape [2, 1] has one class, expected at least 2"},
      {"LabelType",
       "SoftmaxCrossEntropyLoss",
       {},
       {f32({2, 3}), {{2}, DType::kI64}},
       "fc: labels: type I64, expected I32"},
      {"ShareCount",
       "SoftmaxCrossEntropyLoss",
       {},
       {f32({2, 3}), f32({2})},
       "fc: labels: shape [2], expected [2, 3]"},
      {"IgnoredShares",
       "KullbackLeiblerDivergence",
       {{"ignore_index", int64_t{1}}},
       {f32({2, 3}), f32({2, 3})},
       "fc: ignore_index: is only supported for labels"},
      {"LabelCount",
       "SoftmaxCrossEntropyLoss",
       {},
       {f32({2, 3}), {{3}, DType::kI32}},
       "fc: labels: shape [3], expected [2]"},
      {"Smoothing",
       "SoftmaxCrossEntropyLoss",
       {{"label_smoothing", 1.0}},
       {f32({2, 3}), {{2}, DType::kI32}},
       "fc: label_smoothing: is out of range, expected [0, 1)"},
      {"DivergenceOfOneHotLabels",
       "KullbackLeiblerDivergence",
       {},
       {f32({2, 3}), {{2}, DType::kI32}},
       "fc: label_smoothing: is out of range, expected (0, 1)"},
      {"WeightCount",
       "SoftmaxCrossEntropyLoss",
       {{"class_weights", std::vector<double>{1, 2}}},
       {f32({2, 3}), {{2}, DType::kI32}},
       "fc: class_weights: has 2 entries, expected 3, one per class"},
      {"NegativeWeight",
       "SoftmaxCrossEntropyLoss",
       {{"class_weights", std::vector<double>{1, -2, 1}}},
       {f32({2, 3}), {{2}, DType::kI32}},
       "fc: class_weights: expected numbers of 0 or more, not all 0"},
      {"IgnoredClass",
       "SoftmaxCrossEntropyLoss",
       {{"ignore_index", int64_t{3}}},
       {f32({2, 3}), {{2}, DType::kI32}},
       "fc: ignore_index: 3 is out of range, expected 0..2"},
      {"Delta",
       "HuberLoss",
       {{"delta", 0.0}},
       {f32({2, 1}), f32({2, 1})},
       "fc: delta: is not a number more than 0"},
      {"ClassesOfNumbers",
       "HuberLoss",
       {},
       {f32({2, 1}), {{2}, DType::kI32}},
       "fc: target: type I32, expected F32 as prediction"},
      {"ClassCount",
       "BinaryCrossEntropyLoss",
       {},
       {f32({2, 1}), {{3}, DType::kI32}},
       "fc: target: shape [3] has not one class for each of 2 predictions"},
      {"MseShapes",
       "MeanSquaredError",
       {},
       {f32({2, 1}), f32({2})},
       "fc: target: shape [2], expected [2, 1] as prediction"},
  };
}

TEST(GraphRefuses, WhatCannotRunNamingNodeFieldValueAndExpectation) {
  for (const Refusal& r : refusals()) {
    SCOPED_TRACE(r.name);
    Graph g;
    std::vector<TensorId> inputs;
    for (const TensorType& t : r.inputs) {
      inputs.push_back(add_input(g, "in" + std::to_string(inputs.size()), t.shape, t.dtype));
    }
    const auto node = g.add_node("fc", get_op(r.op), r.attributes, inputs, {"out"});
    ASSERT_FALSE(node.ok());
    EXPECT_EQ(node.error().message, r.message);
    EXPECT_EQ(node.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(node.error().violations.size(), 1u);
    EXPECT_TRUE(g.nodes().empty());  // a refusal leaves the graph unchanged
    g.verify();
  }
}

TEST(Graph, FaultsOnAnUnknownInputAndOnANameUsedTwice) {
  Graph g;
  const TensorId x = add_input(g, "x", {2});
  EXPECT_THROW(add_input(g, "x", {2}), InvariantError);
  EXPECT_THROW((void)g.add_node("n", get_op("Relu"), {}, {7}, {"y"}), InvariantError);
  g.add_node("n", get_op("Relu"), {}, {x}, {"y"}).value();
  EXPECT_THROW((void)g.add_node("n", get_op("Relu"), {}, {x}, {"z"}), InvariantError);
  EXPECT_THROW(get_op("Rellu"), InvariantError);
  EXPECT_EQ(find_op("Rellu"), nullptr);
}

TEST(Graph, DumpsOneLinePerTensorAndNode) {
  Graph g;
  const TensorId x = add_input(g, "x", {2, 3});
  const TensorId w =
      g.add_tensor({"fc.weight", f32({4, 3}), Role::kParameter, Layout::kRowMajor, kNoNode, {}});
  g.add_node("fc", get_op("Gemm"), {{"transB", int64_t{1}}}, {x, w}, {"fc"}).value();
  g.add_node("act", get_op("Gelu"), {{"approximate", std::string("tanh")}}, {2}, {"act"}).value();
  g.mark_output(3);
  EXPECT_EQ(g.dump(),
            "input x: F32[2, 3]\n"
            "parameter fc.weight: F32[4, 3]\n"
            "fc = Gemm{transB=1}(x, fc.weight) -> fc: F32[2, 4]\n"
            "act = Gelu{approximate=\"tanh\"}(fc) -> act: F32[2, 4]\n"
            "output act\n");
}

TEST(GraphVerify, FaultsWhenAnUpdatedTensorIsReadAgain) {
  Graph g;
  const TensorId p =
      g.add_tensor({"p", f32({2}), Role::kParameter, Layout::kRowMajor, kNoNode, {}});
  const TensorId d = add_input(g, "g", {2});
  const TensorId rate = add_input(g, "rate", {1});
  g.add_node("update", get_op("SgdUpdate"), {}, {p, d, rate, kNoTensor}, {}).value();
  g.verify();
  g.add_node("late", get_op("Relu"), {}, {p}, {"y"}).value();
  EXPECT_THROW(g.verify(), InvariantError);
}

TEST(GraphVerify, FaultsWhenAnInputOfTheRunIsUpdated) {
  Graph g;
  const TensorId p = add_input(g, "p", {2});
  const TensorId d = add_input(g, "g", {2});
  const TensorId rate = add_input(g, "rate", {1});
  g.add_node("update", get_op("SgdUpdate"), {}, {p, d, rate, kNoTensor}, {}).value();
  EXPECT_THROW(g.verify(), InvariantError);
}

TEST(Attributes, PrintShortestNumbersAndConvertIntegers) {
  const Attributes a{{"epsilon", 1e-5}, {"ratio", 0.1}, {"axis", int64_t{-1}}, {"pads", Ints{}}};
  EXPECT_EQ(a.to_string(), "{axis=-1, epsilon=1e-05, pads=[], ratio=0.1}");
  EXPECT_EQ(a.get_float("axis", 0), -1.0);
  EXPECT_EQ(a.get_int("missing", 7), 7);
  EXPECT_THROW(a.get_int("ratio", 0), InvariantError);
}

}  // namespace
}  // namespace trainyard
