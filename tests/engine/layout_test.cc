// Tests of the choice of channels-last activations, and of the Reorder nodes between the layouts.
#include <gtest/gtest.h>

#include "src/graph/op.h"
#include "src/passes/assign_layouts.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;

int64_t count_reorders(const Graph& graph) {
  int64_t count = 0;
  for (const Node& n : graph.nodes()) count += n.op->type() == "Reorder" ? 1 : 0;
  return count;
}

Layout layout_of(const Graph& graph, std::string_view name) {
  return graph.tensor(graph.find_tensor(name).value()).layout;
}

CaseGraph conv_net(int64_t C) {
  CaseBuilder b(DType::kF64);
  const TensorId x = b.input("x", {2, C, 6, 6});
  const TensorId h = b.one("h", "Conv", {}, {x, b.parameter("w", {4, C, 3, 3})});
  const TensorId r = b.one("r", "Relu", {}, {h});
  const TensorId f = b.one("f", "Flatten", {}, {r});
  return b.finish(f);
}

TEST(AssignLayouts, ReordersAnImageOnceForForwardAndBackward) {
  CaseGraph c = conv_net(3);
  std::map<TensorId, TensorId> gradients;
  c = testing::with_gradients(std::move(c), &gradients);
  assign_layouts(c.graph);
  c.graph.verify();
  EXPECT_EQ(count_reorders(c.graph), 1);
  EXPECT_EQ(layout_of(c.graph, "x"), Layout::kRowMajor);
  EXPECT_EQ(layout_of(c.graph, "x/nhwc"), Layout::kChannelsLast);
  for (const char* name : {"h", "r", "f/grad.0", "r/grad.0"}) {
    EXPECT_EQ(layout_of(c.graph, name), Layout::kChannelsLast) << name;
  }
  EXPECT_EQ(layout_of(c.graph, "w"), Layout::kRowMajor);
  EXPECT_EQ(layout_of(c.graph, "h/grad.1"), Layout::kRowMajor);  // the gradient of w
}

TEST(AssignLayouts, NeedsNoReorderForOneChannel) {
  CaseGraph c = conv_net(1);
  assign_layouts(c.graph);
  EXPECT_EQ(count_reorders(c.graph), 0);
  EXPECT_EQ(layout_of(c.graph, "x"), Layout::kChannelsLast);
}

TEST(AssignLayouts, KeepsElementwiseGraphsRowMajor) {
  CaseBuilder b(DType::kF32);
  CaseGraph c = b.finish(b.one("y", "Relu", {}, {b.input("x", {2, 3, 4, 5})}));
  assign_layouts(c.graph);
  EXPECT_EQ(count_reorders(c.graph), 0);
  EXPECT_EQ(layout_of(c.graph, "y"), Layout::kRowMajor);
}

// A parameter used as an image cannot be reordered, so the op that reads it stays row-major.
TEST(AssignLayouts, StaysRowMajorBesideAParameterShapedLikeAnImage) {
  CaseBuilder b(DType::kF32);
  const TensorId p = b.parameter("p", {2, 3, 6, 6});
  const TensorId h = b.one("h", "Conv", {}, {p, b.parameter("w", {4, 3, 3, 3})});
  CaseGraph c = b.finish(b.one("f", "Flatten", {}, {h}));
  std::map<TensorId, TensorId> gradients;
  c = testing::with_gradients(std::move(c), &gradients);
  assign_layouts(c.graph);
  c.graph.verify();
  EXPECT_EQ(layout_of(c.graph, "p"), Layout::kRowMajor);
  EXPECT_EQ(layout_of(c.graph, "h"), Layout::kRowMajor);
  EXPECT_EQ(layout_of(c.graph, "h/grad.0"), Layout::kRowMajor);
}

TEST(AssignLayouts, ChangesNoValueAtTheBorderOfAProgram) {
  const auto backend = make_reference_backend();
  CaseGraph c = conv_net(3);
  std::map<TensorId, TensorId> gradients;
  c = testing::with_gradients(std::move(c), &gradients);
  // a tensor of rank 4, which is channels-last within the program
  c.graph.mark_output(c.graph.find_tensor("r").value());
  const auto last = testing::run_case(c, *backend, {.channels_last = true, .keep_all = false});
  const auto first = testing::run_case(c, *backend, {.channels_last = false, .keep_all = false});
  ASSERT_EQ(last.values.size(), first.values.size());
  for (const auto& [name, values] : first.values) {
    const auto& other = last.values.at(name);
    ASSERT_EQ(values.size(), other.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], other[i], 1e-12) << name;
  }
}

}  // namespace
}  // namespace trainyard
