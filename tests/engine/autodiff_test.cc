// Tests of the structure of the backward pass: which gradients are summed, in which order, and
// which are omitted.
#include <gtest/gtest.h>

#include "src/autodiff/differentiate.h"
#include "src/base/check.h"
#include "src/graph/op.h"
#include "tests/support/graph_cases.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;

const Node* find_node(const Graph& graph, std::string_view name) {
  for (const Node& n : graph.nodes()) {
    if (n.name == name) return &n;
  }
  return nullptr;
}

std::string name_of_input(const Graph& graph, const Node& node, size_t i) {
  return graph.tensor(node.inputs.at(i)).name;
}

// A sum in another order rounds differently: the order is part of the rule that the same job gives
// the same bits.
TEST(Differentiate, SumsTheGradientsOfReadersInTheOrderOfReaders) {
  CaseBuilder b(DType::kF32);
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {3})});
  const TensorId first = b.one("first", "Relu", {}, {x});
  const TensorId second = b.one("second", "Sigmoid", {}, {x});
  const TensorId both = b.one("both", "Add", {}, {second, first});
  CaseGraph c = b.finish(b.one("y", "Add", {}, {both, x}));
  differentiate(c.graph, c.loss);
  c.graph.verify();
  const Node* sum1 = find_node(c.graph, "x/grad_sum1");
  const Node* sum2 = find_node(c.graph, "x/grad_sum2");
  ASSERT_NE(sum1, nullptr);
  ASSERT_NE(sum2, nullptr);
  EXPECT_EQ(find_node(c.graph, "x/grad_sum3"), nullptr);
  EXPECT_EQ(name_of_input(c.graph, *sum1, 0), "first/grad.0");
  EXPECT_EQ(name_of_input(c.graph, *sum1, 1), "second/grad.0");
  EXPECT_EQ(name_of_input(c.graph, *sum2, 0), "x/grad_sum1");
  EXPECT_EQ(name_of_input(c.graph, *sum2, 1), "loss/grad.0");
}

TEST(Differentiate, LeavesOutGradientsThatNobodyNeeds) {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  const TensorId h = b.one("h", "Gemm", trans_b, {b.input("x", {2, 3}), b.parameter("w", {4, 3})});
  CaseGraph c = b.finish(b.one("y", "Gemm", trans_b, {h, b.input("frozen", {5, 4})}));
  const auto gradients = differentiate(c.graph, c.loss);
  EXPECT_EQ(gradients.size(), 1u);
  const Node* first = find_node(c.graph, "h/grad");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->outputs[0], kNoTensor);  // gradient of the data
  EXPECT_NE(first->outputs[1], kNoTensor);
  EXPECT_EQ(first->outputs[2], kNoTensor);  // the layer has no bias
  const Node* second = find_node(c.graph, "y/grad");
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second->outputs[0], kNoTensor);
  EXPECT_EQ(second->outputs[1], kNoTensor);  // gradient of the frozen weight
}

TEST(Differentiate, IgnoresWhatTheLossDoesNotDependOn) {
  CaseBuilder b(DType::kF32);
  const TensorId p = b.parameter("p", {3});
  b.one("aside", "Relu", {}, {b.parameter("unused", {3})});
  CaseGraph c = b.finish(b.one("y", "Tanh", {}, {p}));
  const auto gradients = differentiate(c.graph, c.loss);
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients.begin()->first, p);
  EXPECT_EQ(find_node(c.graph, "aside/grad"), nullptr);
}

TEST(Differentiate, MarksGradientsOfParametersAndNothingElse) {
  CaseBuilder b(DType::kF32);
  const Attributes trans_b{{"transB", int64_t{1}}};
  const TensorId w = b.parameter("w", {4, 4});
  const TensorId h = b.one("h", "Gemm", trans_b, {b.input("x", {3, 4}), w});
  CaseGraph c = b.finish(b.one("y", "Gemm", trans_b, {h, w}));
  const auto gradients = differentiate(c.graph, c.loss);
  EXPECT_EQ(c.graph.tensor(gradients.at(w)).name, "w/grad_sum1");
  for (const TensorInfo& t : c.graph.tensors()) {
    const bool of_w = t.name == "w/grad_sum1" || t.name == "h/grad.1" || t.name == "y/grad.1";
    EXPECT_EQ(t.role == Role::kGradient, of_w) << t.name;
  }
}

TEST(Differentiate, FaultsOnALossThatIsNoScalar) {
  CaseBuilder b(DType::kF32);
  const TensorId y = b.one("y", "Tanh", {}, {b.parameter("p", {3})});
  CaseGraph c = b.finish(y);
  EXPECT_THROW(differentiate(c.graph, y), InvariantError);
}

}  // namespace
}  // namespace trainyard
