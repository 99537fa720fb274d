#include "src/ops/batch_normalization_relu.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

void check_images(OpChecks& check, const InferContext& c) {
  check.float_type(0).not_empty(0);
  if (!check.ok()) return;
  const Shape& x = c.input(0).shape;
  check.require(x.rank() == 4 || x.rank() == 2, "SHAPE_MISMATCH", "x",
                "shape " + x.to_string() + ", expected [N, C, H, W] or [N, C]");
}

void check_given_vectors(OpChecks& check, const InferContext& c, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; ++i) {
    if (check.ok() && c.has_input(i)) check.same_dtype(i, 0).shape(i, {c.input(0).shape[1]});
  }
}

int64_t elements_of_x(const Graph& graph, const Node& node) {
  return graph.tensor(node.inputs[0]).type.shape.elements();
}

class BatchNormalizationRelu final : public Op {
 public:
  std::string_view type() const override { return "BatchNormalizationRelu"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "b", "running_mean", "running_var", "residual"}, 5,
                   {"epsilon", "momentum", "training_mode"});
    check_images(check, c);
    check_given_vectors(check, c, 1, 4);
    check.int_in("training_mode", 0, 0, 1);
    if (c.has_input(5)) check.same_dtype(5, 0).same_shape(5, 0);
    if (!check.ok()) return check.error();
    const TensorType channel{{c.input(0).shape[1]}, c.input(0).dtype};
    return std::vector{c.input(0), channel, channel};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const bool training = node.attributes.get_int("training_mode", 0) == 1;
    const bool residual = node.inputs.size() > 5 && node.inputs[5] != kNoTensor;
    cost.flops = elements_of_x(graph, node) * ((training ? 8 : 2) + 1 + (residual ? 1 : 0));
    return cost;
  }

  std::vector<int64_t> mutated_inputs(const Node&) const override { return {3, 4}; }
  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {1, 2}}; }
};

class BatchNormalizationReluGrad final : public Op {
 public:
  explicit BatchNormalizationReluGrad(bool skip) : skip_(skip) {}
  std::string_view type() const override {
    return skip_ ? "SkipBatchNormalizationReluGrad" : "BatchNormalizationReluGrad";
  }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    std::vector<std::string_view> inputs = {"x",  "scale", "saved_mean", "saved_inv_std",
                                            "dy", "b",     "y"};
    if (skip_) inputs.emplace_back("skip");
    OpChecks check(c, inputs, 5, {});
    check_images(check, c);
    check_given_vectors(check, c, 1, 3);
    check_given_vectors(check, c, 5, 5);
    check.same_dtype(4, 0).same_shape(4, 0);
    check.require(c.has_input(5) != c.has_input(6), "SHAPE_MISMATCH", "y",
                  "expected b or y, and not both");
    if (check.ok() && c.has_input(6)) check.same_dtype(6, 0).same_shape(6, 0);
    if (skip_) {
      check.require(c.has_input(7), "INPUT_COUNT_INVALID", "skip", "this input is required");
      if (check.ok()) check.same_dtype(7, 0).same_shape(7, 0);
    }
    if (!check.ok()) return check.error();
    const TensorType channel{{c.input(0).shape[1]}, c.input(0).dtype};
    return std::vector{c.input(0), channel, channel, c.input(0)};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = elements_of_x(graph, node) * (skip_ ? 12 : 11);
    return cost;
  }

  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    // dx or g may hold the sum dy + skip, which is written before y is read, so neither may share
    // y's memory.
    if (skip_) return {{0, 4}, {0, 7}, {3, 4}, {3, 7}};
    return {{0, 4}, {0, 6}, {3, 4}, {3, 6}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }

 private:
  bool skip_;
};

class BatchNormalizationReplay final : public Op {
 public:
  std::string_view type() const override { return "BatchNormalizationReplay"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "b", "saved_mean", "saved_inv_std", "residual"}, 5, {"relu"});
    check_images(check, c);
    check_given_vectors(check, c, 1, 4);
    check.int_in("relu", 0, 0, 1);
    if (c.has_input(5)) check.same_dtype(5, 0).same_shape(5, 0);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = elements_of_x(graph, node) * 4;
    return cost;
  }

  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

}  // namespace

const Op* batch_normalization_relu_op() {
  static const BatchNormalizationRelu op;
  return &op;
}
const Op* batch_normalization_relu_grad_op() {
  static const BatchNormalizationReluGrad op(/*skip=*/false);
  return &op;
}
const Op* skip_batch_normalization_relu_grad_op() {
  static const BatchNormalizationReluGrad op(/*skip=*/true);
  return &op;
}
const Op* batch_normalization_replay_op() {
  static const BatchNormalizationReplay op;
  return &op;
}

}  // namespace trainyard
