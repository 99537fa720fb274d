#include "src/ops/head_loss.h"

#include "src/ops/shape_helpers.h"
#include "src/ops/softmax_xent.h"
#include "src/ops/tf32.h"

namespace trainyard {
namespace {

class HeadLoss final : public Op {
 public:
  std::string_view type() const override { return "GemmSoftmaxCrossEntropyLoss"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "labels", "dloss", "b"}, 4,
                   {"transB", kTf32Attribute, "label_smoothing", "ignore_index", "class_weights"});
    check.float_type(0).rank(0, 2).not_empty(0).same_dtype(1, 0).rank(1, 2).not_empty(1);
    check.int_in("transB", 0, 1, 1).dtype(2, DType::kI32).same_dtype(3, 0).shape(3, {1});
    if (!check.ok()) return check.error();
    const TensorType &x = c.input(0), &w = c.input(1);
    const int64_t classes = w.shape[0];
    check.shape(1, {classes, x.shape[1]}).shape(2, {x.shape[0]});
    check.same_dtype(4, 0).shape(4, {classes});
    check_class_attributes(check, c.attributes(), classes);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, x.dtype}, x, w, TensorType{{classes}, x.dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const Shape& x = graph.tensor(node.inputs[0]).type.shape;
    const int64_t classes = graph.tensor(node.inputs[1]).type.shape[0];
    const int64_t products = 1 + (node.outputs[1] != kNoTensor) + (node.outputs[2] != kNoTensor);
    cost.flops = x[0] * classes *
                 (2 * products * x[1] + 17);  // 17 FLOPs per score: the loss and its gradient
    if (node.inputs.size() > 4 && node.inputs[4] != kNoTensor) cost.flops += x[0] * classes;
    if (node.outputs[3] != kNoTensor) cost.flops += x[0] * classes;
    return cost;
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0, 2, 3}, .f32_inputs = {3}, .factors = {0, 1}};
  }
};

}  // namespace

const Op* head_loss_op() {
  static const HeadLoss op;
  return &op;
}

}  // namespace trainyard
