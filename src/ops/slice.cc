#include "src/ops/slice.h"

#include <algorithm>
#include <numeric>

#include "src/ops/axes.h"

namespace trainyard {

SliceBox slice_box(const Attributes& attributes, const Shape& x) {
  const std::vector<int64_t> starts = attributes.get_ints("starts", {});
  const std::vector<int64_t> ends = attributes.get_ints("ends", {});
  std::vector<int64_t> counted(starts.size());
  std::iota(counted.begin(), counted.end(), int64_t{0});
  const std::vector<int64_t> axes = attributes.get_ints("axes", counted);
  const std::vector<int64_t> steps =
      attributes.get_ints("steps", std::vector<int64_t>(starts.size(), 1));
  SliceBox box{std::vector<int64_t>(x.dims().size(), 0), std::vector<int64_t>(x.dims().size(), 1),
               x.dims()};
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i] < 0 ? axes[i] + x.rank() : axes[i]);
    const int64_t size = x.dims()[axis];
    const auto position = [size](int64_t p) {
      return std::clamp<int64_t>(p < 0 ? p + size : p, 0, size);
    };
    box.first[axis] = position(starts[i]);
    box.step[axis] = steps[i];
    const int64_t length = position(ends[i]) - box.first[axis];
    box.size[axis] = length <= 0 ? 0 : (length - 1) / steps[i] + 1;
  }
  return box;
}

namespace {

// Returns the shape of y. Checks that the lists have the same length, axes are in range, steps are
// at least 1, and y is not empty.
Shape checked_slice(OpChecks& check, const InferContext& c, const Shape& x) {
  const Attributes& a = c.attributes();
  const size_t count = a.get_ints("starts", {}).size();
  for (const char* name : {"starts", "ends"}) {
    check.require(a.find(name) != nullptr, "ATTRIBUTE_REQUIRED", name,
                  "this attribute is required");
  }
  for (const char* name : {"ends", "axes", "steps"}) {
    if (!check.ok() || a.find(name) == nullptr) continue;
    const size_t own = a.get_ints(name, {}).size();
    check.require(own == count, "ATTRIBUTE_OUT_OF_RANGE", name,
                  "has " + std::to_string(own) + " entries, expected " + std::to_string(count) +
                      " as starts");
  }
  check.require(
      count >= 1 && count <= x.dims().size(), "ATTRIBUTE_OUT_OF_RANGE", "starts",
      "has " + std::to_string(count) + " entries, expected 1.." + std::to_string(x.rank()));
  if (!check.ok()) return {};
  if (a.find("axes") != nullptr) checked_axes(check, "axes", a.get_ints("axes", {}), x.rank());
  const std::vector<int64_t> steps = a.get_ints("steps", {});
  check.require(std::ranges::all_of(steps, [](int64_t s) { return s >= 1; }),
                "ATTRIBUTE_OUT_OF_RANGE", "steps",
                Shape(steps).to_string() + ", expected steps of at least 1");
  if (!check.ok()) return {};
  const Shape y(slice_box(a, x).size);
  check.require(std::ranges::all_of(y.dims(), [](int64_t d) { return d >= 1; }), "SHAPE_MISMATCH",
                "ends",
                "no element of " + x.to_string() + " is between starts " +
                    Shape(a.get_ints("starts", {})).to_string() + " and ends " +
                    Shape(a.get_ints("ends", {})).to_string());
  return y;
}

class SliceGrad final : public Op {
 public:
  std::string_view type() const override { return "SliceGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"starts", "ends", "axes", "steps", "shape"});
    check.float_type(0);
    const Shape x(c.attributes().get_ints("shape", {}));
    const Shape y = checked_slice(check, c, x);
    check.shape(0, y);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{x, c.input(0).dtype}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class Slice final : public Op {
 public:
  std::string_view type() const override { return "Slice"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"starts", "ends", "axes", "steps"});
    check.float_type(0).rank_at_least(0, 1).not_empty(0);
    if (!check.ok()) return check.error();
    const Shape y = checked_slice(check, c, c.input(0).shape);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{y, c.input(0).dtype}};
  }
  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    attributes.set("shape", c.graph().tensor(c.input(0)).type.shape.dims());
    c.set_grad(
        0, c.add("grad", *slice_grad_op(), std::move(attributes), {c.grad_output(0)}, {true})[0]);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* slice_op() {
  static const Slice op;
  return &op;
}
const Op* slice_grad_op() {
  static const SliceGrad op;
  return &op;
}

}  // namespace trainyard
