#include "src/ops/batch_normalization.h"

#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

void check_x(OpChecks& check, const InferContext& c) {
  check.float_type(0).not_empty(0);
  if (!check.ok()) return;
  const Shape& x = c.input(0).shape;
  check.require(x.rank() == 4 || x.rank() == 2, "SHAPE_MISMATCH", "x",
                "shape " + x.to_string() + " has rank " + std::to_string(x.rank()) +
                    ", expected [N, C, H, W] or [N, C]");
}

void check_vectors(OpChecks& check, const InferContext& c, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; ++i) {
    if (check.ok()) check.same_dtype(i, 0).shape(i, {c.input(0).shape[1]});
  }
}

void check_number(OpChecks& check, const InferContext& c, std::string_view name, double fallback,
                  bool zero_allowed) {
  const double value = c.attributes().get_float(name, fallback);
  const bool accepted = value <= 1 && (zero_allowed ? value >= 0 : value > 0);  // also refuses NaN
  check.require(accepted, "ATTRIBUTE_OUT_OF_RANGE", name,
                std::to_string(value) + " is out of range, expected " +
                    (zero_allowed ? "0..1" : "above 0, at most 1"));
}

int64_t values_per_channel(const Shape& x) { return x.elements() / x[1]; }

class BatchNormalization final : public Op {
 public:
  std::string_view type() const override { return "BatchNormalization"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "b", "running_mean", "running_var"}, 5,
                   {"epsilon", "momentum", "training_mode"});
    check_x(check, c);
    check_vectors(check, c, 1, 4);
    check.int_in("training_mode", 0, 0, 1);
    check_number(check, c, "epsilon", 1e-5, /*zero_allowed=*/false);
    check_number(check, c, "momentum", 0.9, /*zero_allowed=*/true);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    check.require(
        c.attributes().get_int("training_mode", 0) == 0 || values_per_channel(x.shape) >= 2,
        "SHAPE_MISMATCH", "x",
        "shape " + x.shape.to_string() +
            " has 1 value per channel, training needs at least 2 (a larger batch_size)");
    if (!check.ok()) return check.error();
    const TensorType channel{{x.shape[1]}, x.dtype};
    return std::vector{x, channel, channel};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.node().attributes.get_int("training_mode", 0) == 1,
                    c.node().name + ": BatchNormalization has a gradient only in training_mode 1");
    TRAINYARD_CHECK(c.output(1) != kNoTensor && c.output(2) != kNoTensor,
                    c.node().name + ": backward needs saved_mean and saved_inv_std");
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1), c.needs_grad(2)};
    const auto grads =
        c.add("grad", *batch_normalization_grad_op(), {},
              {c.input(0), c.input(1), c.output(1), c.output(2), c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 3; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const bool training = node.attributes.get_int("training_mode", 0) == 1;
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements() * (training ? 8 : 2);
    return cost;
  }

  std::vector<int64_t> mutated_inputs(const Node&) const override { return {3, 4}; }
  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {1, 2}}; }
};

class BatchNormalizationGrad final : public Op {
 public:
  std::string_view type() const override { return "BatchNormalizationGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "saved_mean", "saved_inv_std", "dy"}, 5);
    check_x(check, c);
    check_vectors(check, c, 1, 3);
    check.same_dtype(4, 0).same_shape(4, 0);
    if (!check.ok()) return check.error();
    const TensorType channel{{c.input(0).shape[1]}, c.input(0).dtype};
    return std::vector{c.input(0), channel, channel};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements() * 10;
    return cost;
  }

  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 4}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kChannelsLastToo; }
};

}  // namespace

const Op* batch_normalization_op() {
  static const BatchNormalization op;
  return &op;
}
const Op* batch_normalization_grad_op() {
  static const BatchNormalizationGrad op;
  return &op;
}

}  // namespace trainyard
