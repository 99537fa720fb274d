#include "src/ops/reduce.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "src/ops/axes.h"

namespace trainyard {

std::vector<int64_t> reduce_axes(const Attributes& attributes, int64_t rank) {
  std::vector<int64_t> axes = attributes.get_ints("axes", {});
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::sort(axes.begin(), axes.end());
  return axes;
}

namespace {

// Returns the shape of y. Refuses wrong axes.
Shape reduced_shape(OpChecks& check, const InferContext& c, const Shape& x) {
  checked_axes(check, "axes", c.attributes().get_ints("axes", {}), x.rank());
  check.int_in("keepdims", 1, 0, 1);
  check.require(x.rank() <= kRankMax, "SHAPE_MISMATCH", "x", "has more than 8 axes");
  if (!check.ok()) return {};
  const std::vector<int64_t> axes = reduce_axes(c.attributes(), x.rank());
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (!std::ranges::binary_search(axes, i)) {
      dims.push_back(x[i]);
    } else if (c.attributes().get_int("keepdims", 1) != 0) {
      dims.push_back(1);
    }
  }
  return Shape(std::move(dims));
}

Cost reduce_cost(const Op& op, const Graph& graph, const Node& node, const Shape& x) {
  Cost cost = op.Op::cost(graph, node);
  cost.flops = x.elements();
  return cost;
}

/// dy -> dx: dy broadcast to the shape of x, times 1 (sum) or 1 / count (mean).
class ReduceSumGrad final : public Op {
 public:
  explicit ReduceSumGrad(std::string_view type) : type_(type) {}
  std::string_view type() const override { return type_; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"axes", "keepdims", "shape"});
    check.float_type(0);
    const Shape x(c.attributes().get_ints("shape", {}));
    const Shape y = reduced_shape(check, c, x);
    check.shape(0, y);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return reduce_cost(*this, graph, node, graph.tensor(node.outputs[0]).type.shape);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 private:
  std::string_view type_;
};

/// (x, y, dy) -> dx, for reductions whose gradient depends on the values.
class ReduceValueGrad final : public Op {
 public:
  explicit ReduceValueGrad(std::string_view type) : type_(type) {}
  std::string_view type() const override { return type_; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "y", "dy"}, 3, {"axes", "keepdims"});
    check.float_type(0).same_dtype(1, 0).same_dtype(2, 0);
    if (!check.ok()) return check.error();
    const Shape y = reduced_shape(check, c, c.input(0).shape);
    check.shape(1, y).shape(2, y);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return reduce_cost(*this, graph, node, graph.tensor(node.outputs[0]).type.shape);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 private:
  std::string_view type_;
};

class Reduce final : public Op {
 public:
  Reduce(std::string_view type, const Op& grad, bool reads_values)
      : type_(type), grad_(grad), reads_values_(reads_values) {}
  std::string_view type() const override { return type_; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"axes", "keepdims"});
    check.float_type(0).not_empty(0);
    if (!check.ok()) return check.error();
    const Shape y = reduced_shape(check, c, c.input(0).shape);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{y, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    std::vector<TensorId> inputs = {c.grad_output(0)};
    if (reads_values_) {
      inputs = {c.input(0), c.output(0), c.grad_output(0)};
    } else {
      attributes.set("shape", c.graph().tensor(c.input(0)).type.shape.dims());
    }
    c.set_grad(0, c.add("grad", grad_, std::move(attributes), std::move(inputs), {true})[0]);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return reduce_cost(*this, graph, node, graph.tensor(node.inputs[0]).type.shape);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 private:
  std::string_view type_;
  const Op& grad_;
  bool reads_values_;
};

}  // namespace

std::span<const Op* const> reduce_ops() {
  static const ReduceSumGrad sum_grad("ReduceSumGrad"), mean_grad("ReduceMeanGrad");
  static const ReduceValueGrad min_grad("ReduceMinGrad"), max_grad("ReduceMaxGrad"),
      l2_grad("ReduceL2Grad");
  static const Reduce sum("ReduceSum", sum_grad, false), mean("ReduceMean", mean_grad, false),
      min("ReduceMin", min_grad, true), max("ReduceMax", max_grad, true),
      l2("ReduceL2", l2_grad, true);
  static const std::array<const Op*, 10> ops = {
      &sum, &mean, &min, &max, &l2, &sum_grad, &mean_grad, &min_grad, &max_grad, &l2_grad};
  return ops;
}

}  // namespace trainyard
