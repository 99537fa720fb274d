#include "src/ops/axes.h"

#include <algorithm>

#include "src/ops/expand.h"

namespace trainyard {

int64_t checked_axis(OpChecks& check, std::string_view attribute, int64_t axis, int64_t rank) {
  check.require(axis >= -rank && axis < rank, "ATTRIBUTE_OUT_OF_RANGE", attribute,
                std::to_string(axis) + " is out of range, expected " + std::to_string(-rank) +
                    ".." + std::to_string(rank - 1));
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> checked_axes(OpChecks& check, std::string_view attribute,
                                  const std::vector<int64_t>& axes, int64_t rank) {
  std::vector<int64_t> sorted;
  for (const int64_t axis : axes) sorted.push_back(checked_axis(check, attribute, axis, rank));
  std::sort(sorted.begin(), sorted.end());
  check.require(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
                "ATTRIBUTE_OUT_OF_RANGE", attribute,
                Shape(axes).to_string() + " names an axis twice");
  return sorted;
}

std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  const int64_t rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) {  // counted from the last axis
    const int64_t da = i < a.rank() ? a[a.rank() - 1 - i] : 1;
    const int64_t db = i < b.rank() ? b[b.rank() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) return std::nullopt;
    dims[static_cast<size_t>(rank - 1 - i)] = da == 1 ? db : da;
  }
  return Shape(std::move(dims));
}

Shape checked_broadcast(OpChecks& check, const InferContext& c, int64_t i, int64_t j) {
  if (!check.ok()) return {};
  const Shape& a = c.input(i).shape;
  const Shape& b = c.input(j).shape;
  const auto both = broadcast_shapes(a, b);
  check.require(both.has_value() && both->fits(), "SHAPE_MISMATCH", check.input_name(j),
                "shape " + b.to_string() + " does not broadcast with " + a.to_string() + " of " +
                    std::string(check.input_name(i)) +
                    ", expected sizes that are equal or 1, from the last axis on");
  check.require(std::max(a.rank(), b.rank()) <= kRankMax, "SHAPE_MISMATCH", check.input_name(j),
                "has more than 8 axes");
  return both.value_or(Shape{});
}

TensorId sum_to(GradientContext& c, std::string_view suffix, TensorId gradient,
                const Shape& shape) {
  if (c.graph().tensor(gradient).type.shape == shape) return gradient;
  return c.add(suffix, *sum_to_op(), {{"shape", shape.dims()}}, {gradient}, {true})[0];
}

}  // namespace trainyard
