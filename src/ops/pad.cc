#include "src/ops/pad.h"

#include <algorithm>
#include <numeric>

#include "src/ops/axes.h"

namespace trainyard {
namespace {

constexpr int64_t kPadMax = 65536;  // far above any practical size; prevents overflow of the sizes

std::vector<int64_t> pad_axes(const Attributes& attributes, int64_t rank) {
  std::vector<int64_t> all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), int64_t{0});
  return attributes.get_ints("axes", std::move(all));
}

/// Returns the shape of y. The result is meaningless after a refusal.
Shape checked_pad(OpChecks& check, const InferContext& c, const Shape& x) {
  const Attributes& a = c.attributes();
  check.require(a.find("pads") != nullptr, "ATTRIBUTE_MISSING", "pads",
                "this attribute is required");
  if (!check.ok()) return {};
  const std::vector<int64_t> pads = a.get_ints("pads", {});
  const std::vector<int64_t> axes = pad_axes(a, x.rank());
  const std::string text = Shape(pads).to_string();
  checked_axes(check, "axes", axes, x.rank());
  check.require(pads.size() == 2 * axes.size(), "ATTRIBUTE_OUT_OF_RANGE", "pads",
                text + ", expected " + std::to_string(2 * axes.size()) +
                    " integers: before each of the axes " + Shape(axes).to_string() +
                    ", then after each");
  check.require(std::ranges::all_of(pads, [](int64_t p) { return p >= 0 && p <= kPadMax; }),
                "ATTRIBUTE_OUT_OF_RANGE", "pads",
                text + ", expected values in 0.." + std::to_string(kPadMax));
  const std::string mode = a.get_string("mode", "constant");
  check.require(mode == "constant" || mode == "reflect" || mode == "edge", "ATTRIBUTE_OUT_OF_RANGE",
                "mode", "'" + mode + "' is not known, expected constant, reflect or edge");
  check.require(mode == "constant" || a.find("value") == nullptr, "ATTRIBUTE_UNUSED", "value",
                "has no effect with mode " + mode + ", expected mode constant");
  if (!check.ok()) return {};
  std::vector<int64_t> dims = x.dims();
  const std::vector<AxisPads> by_axis = axis_pads(a, x);
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto [before, behind] = by_axis[i];
    check.require(mode != "reflect" || std::max(before, behind) < dims[i], "SHAPE_MISMATCH", "pads",
                  text + " reflect more elements than there are: axis " + std::to_string(i) +
                      " of " + x.to_string() + " takes at most " + std::to_string(dims[i] - 1));
    dims[i] += before + behind;
  }
  Shape y(std::move(dims));
  check.require(y.fits(), "SHAPE_MISMATCH", "pads",
                text + " make " + y.to_string() + ", which is too large");
  return y;
}

class Pad final : public Op {
 public:
  std::string_view type() const override { return "Pad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"pads", "axes", "mode", "value"});
    check.float_type(0).rank_at_least(0, 1).not_empty(0);
    if (!check.ok()) return check.error();
    const Shape y = checked_pad(check, c, c.input(0).shape);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{y, c.input(0).dtype}};
  }
  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    attributes.set("shape", c.graph().tensor(c.input(0)).type.shape.dims());
    c.set_grad(0,
               c.add("grad", *pad_grad_op(), std::move(attributes), {c.grad_output(0)}, {true})[0]);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class PadGrad final : public Op {
 public:
  std::string_view type() const override { return "PadGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"pads", "axes", "mode", "value", "shape"});
    check.float_type(0);
    const Shape x(c.attributes().get_ints("shape", {}));
    const Shape y = checked_pad(check, c, x);
    check.shape(0, y);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

std::vector<AxisPads> axis_pads(const Attributes& attributes, const Shape& x) {
  const std::vector<int64_t> pads = attributes.get_ints("pads", {});
  const std::vector<int64_t> axes = pad_axes(attributes, x.rank());
  std::vector<AxisPads> by_axis(x.dims().size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i] < 0 ? axes[i] + x.rank() : axes[i]);
    by_axis[axis] = {pads[i], pads[axes.size() + i]};
  }
  return by_axis;
}

const Op* pad_op() {
  static const Pad op;
  return &op;
}
const Op* pad_grad_op() {
  static const PadGrad op;
  return &op;
}

}  // namespace trainyard
