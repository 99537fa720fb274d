// The table of ops is complete, matches the exported nodes, and is printed in docs/onnx.md. The
// tests catch a new op without an ONNX form, and a row that names other nodes than the export
// writes.
#include "src/onnx/op_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "tests/support/graph_cases.h"
#include "tests/support/source_path.h"

namespace trainyard::onnx {
namespace {

// Ops that only training or passes insert; graphs for inference without passes have none.
const std::set<std::string_view> kOfTraining = {"AccumulateGradient",
                                                "AllGatherDone",
                                                "AllGatherStart",
                                                "AllReduceDone",
                                                "AllReduceStart",
                                                "BatchNormalizationRelu",
                                                "BatchNormalizationReplay",
                                                "BinaryCrossEntropyLoss",
                                                "ClassSoftmax",
                                                "ClipGradient",
                                                "ConvRelu",
                                                "Dropout",
                                                "GatherRows",
                                                "GatherShardsDone",
                                                "GatherShardsStart",
                                                "GemmAdd",
                                                "GemmGelu",
                                                "GemmRelu",
                                                "GemmSoftmaxCrossEntropyLoss",
                                                "GradientNorm",
                                                "GemmGradAdd",
                                                "GradientSquares",
                                                "HuberLoss",
                                                "KullbackLeiblerDivergence",
                                                "MeanAbsoluteError",
                                                "MeanSquaredError",
                                                "NormOfSquares",
                                                "DistinctRows",
                                                "ReduceScatterDone",
                                                "ReduceScatterStart",
                                                "Reorder",
                                                "SampleClasses",
                                                "SampledSoftmaxCrossEntropyLoss",
                                                "ScatterRows",
                                                "SkipNormalization",
                                                "SoftmaxCrossEntropyLoss",
                                                "SplitGather",
                                                "SplitSoftmaxCrossEntropyLoss",
                                                "SumTo",
                                                "TakeRows",
                                                "TensorScatter"};

TEST(OnnxOpTable, HasEveryOpOfInference) {
  for (const Op* op : all_ops()) {
    const std::string_view type = op->type();
    const bool trains =
        type.ends_with("Grad") || type.ends_with("Update") || kOfTraining.contains(type);
    EXPECT_EQ(find_op_row(type) != nullptr, !trains) << type;
  }
  for (const OpRow& row : op_rows()) EXPECT_NE(find_op(row.op), nullptr) << row.op;
}

TEST(OnnxOpTable, RowsNameTheNodesThatTheyBecome) {
  std::map<std::string_view, std::set<std::string>> written;
  const auto write = [&](const Graph& graph, const Node& node,
                         const std::vector<std::string>& names, std::vector<int64_t> shape) {
    GraphWriter onnx;
    NodeWriter writer(onnx, graph, node, names, std::move(shape), "source");
    write_node(writer);
    written[node.op->type()].insert(onnx.ops().begin(), onnx.ops().end());
  };
  for (const testing::GraphCase& c : testing::graph_cases()) {
    const testing::CaseGraph built = c.build(DType::kF32);
    std::vector<std::string> names;
    for (const TensorInfo& t : built.graph.tensors()) names.push_back(t.name);
    for (const Node& node : built.graph.nodes()) {
      if (find_op_row(node.op->type()) == nullptr) continue;
      std::vector<int64_t> shape = node.attributes.get_ints("shape", {});
      write(built.graph, node, names, shape);
      if (node.op->type() == "Expand" && !shape.empty()) {
        shape[0] = kBatch;
        write(built.graph, node, names, shape);
      }
    }
  }
  for (const OpRow& row : op_rows()) {
    EXPECT_EQ(written[row.op], std::set<std::string>(row.onnx.begin(), row.onnx.end())) << row.op;
  }
}

TEST(OnnxOpTable, RefusesAllOpsWithoutAFormAtOnce) {
  testing::CaseBuilder b(DType::kF32);
  const TensorId x = b.parameter("x", {3, 2});
  const TensorId step = b.step(1);
  const TensorId dropped = b.one("drop", "Dropout", {{"ratio", 0.5}}, {x, step});
  const TensorId again = b.one("drop2", "Dropout", {{"ratio", 0.5}}, {dropped, step});
  const testing::CaseGraph c = b.finish(b.one("relu", "Relu", {}, {again}));
  const Status refused = check_ops(c.graph);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "ONNX_UNSUPPORTED");
  for (const char* part : {"Dropout (drop, drop2)", "MeanSquaredError"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(refused.error().message.find("Relu"), std::string::npos) << refused.error().message;
}

TEST(OnnxOpTable, IsInTheDocumentation) {
  std::ifstream in(testing::source_path("docs/onnx.md"));
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(text.find(op_table_markdown()), std::string::npos) << "docs/onnx.md lacks this table:\n"
                                                               << op_table_markdown();
  EXPECT_NE(text.find("opset " + std::to_string(kOpset)), std::string::npos);
}

}  // namespace
}  // namespace trainyard::onnx
