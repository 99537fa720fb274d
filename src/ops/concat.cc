#include "src/ops/concat.h"

#include <algorithm>
#include <numeric>

#include "src/ops/axes.h"

namespace trainyard {

std::vector<int64_t> split_sizes(const Attributes& attributes, int64_t whole) {
  std::vector<int64_t> sizes = attributes.get_ints("split", {});
  const int64_t count = attributes.get_int("num_outputs", 0);
  if (!sizes.empty() || count < 1) return sizes;
  const int64_t each = (whole + count - 1) / count;
  for (int64_t k = 0; k < count; ++k) {
    sizes.push_back(std::clamp<int64_t>(whole - k * each, 0, each));
  }
  return sizes;
}

namespace {

// Returns the types of the parts. All sizes must be at least 1 and add up to the size of input 0
// along the axis.
Result<std::vector<TensorType>> infer_parts(OpChecks& check, const InferContext& c) {
  if (!check.ok()) return check.error();
  const TensorType& x = c.input(0);
  const int64_t axis =
      checked_axis(check, "axis", c.attributes().get_int("axis", 0), x.shape.rank());
  const bool listed = c.attributes().find("split") != nullptr;
  check.require(listed != (c.attributes().find("num_outputs") != nullptr), "ATTRIBUTE_REQUIRED",
                "split", "expected exactly one of split and num_outputs");
  check.int_in("num_outputs", 1, 1, kPartsMax);
  if (!check.ok()) return check.error();
  const std::vector<int64_t> sizes = split_sizes(c.attributes(), x.shape[axis]);
  const bool positive =
      std::ranges::all_of(sizes, [&](int64_t s) { return s >= 1 && s <= x.shape[axis]; });
  check.require(static_cast<int64_t>(sizes.size()) <= kPartsMax, "ATTRIBUTE_OUT_OF_RANGE", "split",
                "has more than 1024 entries");
  check.require(
      positive && std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == x.shape[axis],
      "SHAPE_MISMATCH", listed ? "split" : "num_outputs",
      (listed ? Shape(sizes).to_string()
              : std::to_string(c.attributes().get_int("num_outputs", 0))) +
          " does not cut the " + std::to_string(x.shape[axis]) + " along axis " +
          std::to_string(axis) + " of " + x.shape.to_string() + " into parts of at least 1");
  if (!check.ok()) return check.error();
  std::vector<TensorType> types;
  for (const int64_t size : sizes) {
    std::vector<int64_t> dims = x.shape.dims();
    dims[static_cast<size_t>(axis)] = size;
    types.push_back({Shape(std::move(dims)), x.dtype});
  }
  return types;
}

// Returns the attributes of the gradient node: the axis of the forward node, and explicit sizes.
Attributes part_attributes(int64_t axis, std::vector<int64_t> sizes) {
  return {{"axis", axis}, {"split", std::move(sizes)}};
}

std::vector<std::string> numbered(std::string_view stem, int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::string(stem) + std::to_string(i));
  return names;
}

class ConcatGrad final : public Op {
 public:
  std::string_view type() const override { return "ConcatGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"dy"}, 1, {"axis", "split"});
    check.float_type(0).rank_at_least(0, 1).not_empty(0);
    return infer_parts(check, c);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class SplitGrad final : public Op {
 public:
  std::string_view type() const override { return "SplitGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    const std::vector<std::string> names = numbered("dy", c.input_count());
    OpChecks check(c, std::vector<std::string_view>(names.begin(), names.end()), 0,
                   std::vector<std::string_view>{"axis", "split"});
    const std::vector<int64_t> sizes = c.attributes().get_ints("split", {});
    check.require(static_cast<int64_t>(sizes.size()) == c.input_count(), "INPUT_COUNT_INVALID",
                  "split",
                  "has " + std::to_string(sizes.size()) + " entries for " +
                      std::to_string(c.input_count()) + " inputs");
    int64_t first = 0;
    while (first < c.input_count() && !c.has_input(first)) ++first;
    check.require(first < c.input_count(), "INPUT_COUNT_INVALID", "dy0", "no input is given");
    if (!check.ok()) return check.error();
    const TensorType& dy = c.input(first);
    const int64_t axis =
        checked_axis(check, "axis", c.attributes().get_int("axis", 0), dy.shape.rank());
    if (!check.ok()) return check.error();
    std::vector<int64_t> dims = dy.shape.dims();
    for (int64_t i = first; i < c.input_count(); ++i) {
      dims[static_cast<size_t>(axis)] = sizes[static_cast<size_t>(i)];
      check.float_type(i).same_dtype(i, first).shape(i, Shape(dims));
    }
    if (!check.ok()) return check.error();
    dims[static_cast<size_t>(axis)] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    return std::vector{TensorType{Shape(std::move(dims)), dy.dtype}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class Concat final : public Op {
 public:
  std::string_view type() const override { return "Concat"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    const std::vector<std::string> names = numbered("x", std::max<int64_t>(c.input_count(), 1));
    OpChecks check(c, std::vector<std::string_view>(names.begin(), names.end()),
                   static_cast<int64_t>(names.size()), std::vector<std::string_view>{"axis"});
    check.require(c.attributes().find("axis") != nullptr, "ATTRIBUTE_REQUIRED", "axis",
                  "this attribute is required");
    check.require(c.input_count() <= kPartsMax, "INPUT_COUNT_INVALID", "inputs",
                  "more than 1024 are given");
    check.float_type(0).rank_at_least(0, 1).not_empty(0);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    const int64_t axis =
        checked_axis(check, "axis", c.attributes().get_int("axis", 0), x.shape.rank());
    if (!check.ok()) return check.error();
    std::vector<int64_t> dims = x.shape.dims();
    int64_t& total = dims[static_cast<size_t>(axis)];
    for (int64_t i = 1; i < c.input_count(); ++i) {
      check.same_dtype(i, 0).rank(i, x.shape.rank()).not_empty(i);
      if (!check.ok()) return check.error();
      std::vector<int64_t> own = c.input(i).shape.dims();
      total += own[static_cast<size_t>(axis)];
      own[static_cast<size_t>(axis)] = x.shape[axis];
      check.require(Shape(own) == x.shape, "SHAPE_MISMATCH", check.input_name(i),
                    "shape " + c.input(i).shape.to_string() + " differs from " +
                        x.shape.to_string() + " of x0 elsewhere than along axis " +
                        std::to_string(axis));
    }
    const Shape y(std::move(dims));
    check.require(y.fits(), "SHAPE_OUT_OF_RANGE", "inputs", "together they are too large");
    if (!check.ok()) return check.error();
    return std::vector{TensorType{y, x.dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const auto count = static_cast<int64_t>(c.node().inputs.size());
    const Shape& y = c.graph().tensor(c.output(0)).type.shape;
    int64_t axis = c.node().attributes.get_int("axis", 0);
    if (axis < 0) axis += y.rank();
    std::vector<int64_t> sizes;
    std::vector<bool> wanted;
    for (int64_t i = 0; i < count; ++i) {
      sizes.push_back(c.graph().tensor(c.input(i)).type.shape[axis]);
      wanted.push_back(c.needs_grad(i));
    }
    const auto dx =
        c.add("grad", *concat_grad_op(), part_attributes(axis, sizes), {c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < count; ++i) {
      if (c.needs_grad(i)) c.set_grad(i, dx[static_cast<size_t>(i)]);
    }
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

class Split final : public Op {
 public:
  std::string_view type() const override { return "Split"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"axis", "split", "num_outputs"});
    check.float_type(0).rank_at_least(0, 1).not_empty(0);
    return infer_parts(check, c);
  }

  void differentiate(GradientContext& c) const override {
    const Shape& x = c.graph().tensor(c.input(0)).type.shape;
    int64_t axis = c.node().attributes.get_int("axis", 0);
    if (axis < 0) axis += x.rank();
    std::vector<TensorId> dy;
    for (size_t i = 0; i < c.node().outputs.size(); ++i) {
      dy.push_back(c.grad_output(static_cast<int64_t>(i)));
    }
    c.set_grad(
        0, c.add("grad", *split_grad_op(),
                 part_attributes(axis, split_sizes(c.node().attributes, x[axis])), dy, {true})[0]);
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }
};

}  // namespace

const Op* concat_op() {
  static const Concat op;
  return &op;
}
const Op* concat_grad_op() {
  static const ConcatGrad op;
  return &op;
}
const Op* split_op() {
  static const Split op;
  return &op;
}
const Op* split_grad_op() {
  static const SplitGrad op;
  return &op;
}

}  // namespace trainyard
