#include "src/ops/resize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/ops/window.h"

namespace trainyard {
namespace {

constexpr int64_t kSideMax = 65536;  // far above any practical size

void check_choice(OpChecks& check, const InferContext& c, std::string_view name,
                  std::initializer_list<std::string_view> choices) {
  if (c.attributes().find(name) == nullptr) return;
  const std::string value = c.attributes().get_string(name, "");
  std::string expected;
  for (const std::string_view choice : choices) {
    expected += (expected.empty() ? "" : " or ") + std::string(choice);
  }
  check.require(std::ranges::find(choices, value) != choices.end(), "ATTRIBUTE_OUT_OF_RANGE", name,
                "'" + value + "' is not known, expected " + expected);
}

/// Returns the shape of y. The result is meaningless after a refusal.
Shape checked_resize(OpChecks& check, const InferContext& c, const Shape& x) {
  const Attributes& a = c.attributes();
  check_choice(check, c, "mode", {"nearest", "linear"});
  check_choice(check, c, "coordinate_transformation_mode",
               {"half_pixel", "align_corners", "asymmetric"});
  check_choice(check, c, "nearest_mode",
               {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  check.require(a.get_string("mode", "nearest") == "nearest" || a.find("nearest_mode") == nullptr,
                "ATTRIBUTE_UNUSED", "nearest_mode",
                "has no effect with mode linear, expected mode nearest");
  const bool has_sizes = a.find("sizes") != nullptr;
  check.require(has_sizes != (a.find("scales") != nullptr), "ATTRIBUTE_MISSING", "sizes",
                "expected exactly one of sizes and scales");
  if (!check.ok()) return {};
  const std::vector<int64_t> sizes = a.get_ints("sizes", {0, 0});
  check.require(sizes.size() == 2, "ATTRIBUTE_OUT_OF_RANGE", "sizes",
                "has " + std::to_string(sizes.size()) + " entries, expected 2, of H and W");
  if (!check.ok()) return {};
  std::array<int64_t, 2> side{};
  for (size_t i = 0; i < 2; ++i) {
    const double wanted =
        has_sizes ? static_cast<double>(sizes[i])
                  : std::floor(static_cast<double>(x.dims()[2 + i]) * a.get_float("scales", 0));
    check.require(wanted >= 1 && wanted <= static_cast<double>(kSideMax), "SHAPE_MISMATCH",
                  has_sizes ? "sizes" : "scales",
                  std::string(i == 0 ? "the height" : "the width") + " of " + x.to_string() +
                      " would become " +
                      std::to_string(static_cast<int64_t>(std::clamp(wanted, -1.0, 1e15))) +
                      ", expected 1.." + std::to_string(kSideMax));
    if (!check.ok()) return {};
    side[i] = static_cast<int64_t>(wanted);
  }
  Shape y{x[0], x[1], side[0], side[1]};
  check.require(y.fits(), "SHAPE_MISMATCH", "sizes",
                "make " + y.to_string() + ", which is too large");
  return y;
}

class Resize final : public Op {
 public:
  std::string_view type() const override { return "Resize"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1,
                   {"sizes", "scales", "mode", "coordinate_transformation_mode", "nearest_mode"});
    check.float_type(0).rank(0, 4).not_empty(0);
    if (!check.ok()) return check.error();
    const Shape y = checked_resize(check, c, c.input(0).shape);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{y, c.input(0).dtype}};
  }
  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    attributes.set("input_shape", c.graph().tensor(c.input(0)).type.shape.dims());
    c.set_grad(
        0, c.add("grad", *resize_grad_op(), std::move(attributes), {c.grad_output(0)}, {true})[0]);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const bool linear = node.attributes.get_string("mode", "nearest") == "linear";
    cost.flops = graph.tensor(node.outputs[0]).type.shape.elements() * (linear ? 8 : 0);
    return cost;
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class ResizeGrad final : public Op {
 public:
  std::string_view type() const override { return "ResizeGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1,
                   {"sizes", "scales", "mode", "coordinate_transformation_mode", "nearest_mode",
                    "input_shape"});
    check.float_type(0).rank(0, 4);
    check_input_shape(check, c);
    if (!check.ok()) return check.error();
    const Shape x = input_shape_of(c.attributes());
    const Shape y = checked_resize(check, c, x);
    check.shape(0, y);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const bool linear = node.attributes.get_string("mode", "nearest") == "linear";
    cost.flops = graph.tensor(node.inputs[0]).type.shape.elements() * (linear ? 8 : 1);
    return cost;
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

/// Returns the coordinate in x of the middle of y's row i.
double coordinate(const Attributes& attributes, int64_t x_size, int64_t y_size, int64_t i) {
  const std::string mode = attributes.get_string("coordinate_transformation_mode", "half_pixel");
  const auto at = static_cast<double>(i);
  if (mode == "align_corners") {
    return y_size == 1 ? 0 : at * static_cast<double>(x_size - 1) / static_cast<double>(y_size - 1);
  }
  const double scale =
      attributes.get_float("scales", static_cast<double>(y_size) / static_cast<double>(x_size));
  return mode == "asymmetric" ? at / scale : (at + 0.5) / scale - 0.5;
}

double nearest(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  return mode == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
}

}  // namespace

ResizedRow resized_row(const Attributes& attributes, int64_t x_size, int64_t y_size, int64_t i) {
  const double x = coordinate(attributes, x_size, y_size, i);
  const auto inside = [&](double at) {
    return static_cast<int64_t>(std::clamp(at, 0.0, static_cast<double>(x_size - 1)));
  };
  if (attributes.get_string("mode", "nearest") == "nearest") {
    const int64_t row =
        inside(nearest(attributes.get_string("nearest_mode", "round_prefer_floor"), x));
    return {row, row, 0};
  }
  const double lower = std::floor(x);
  return {inside(lower), inside(lower + 1), x - lower};
}

const Op* resize_op() {
  static const Resize op;
  return &op;
}
const Op* resize_grad_op() {
  static const ResizeGrad op;
  return &op;
}

}  // namespace trainyard
