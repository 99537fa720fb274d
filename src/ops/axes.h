// src/ops/axes.h: axes and broadcasting, for every op that has them.
//
// Axes are ONNX's: 0..rank-1, or negative and counted from the end. Shapes broadcast as numpy's do:
// aligned at the last axis, where sizes are equal or one of them is 1 or missing.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/ops/shape_helpers.h"

namespace trainyard {

constexpr int64_t kRankMax = 8;  // as kernels::kRankMax

/// The axis as 0..rank-1; refused where it is out of range.
int64_t checked_axis(OpChecks& check, std::string_view attribute, int64_t axis, int64_t rank);

/// Axes as ascending numbers in 0..rank-1; refused where one is out of range or given twice.
std::vector<int64_t> checked_axes(OpChecks& check, std::string_view attribute,
                                  const std::vector<int64_t>& axes, int64_t rank);

/// The shape that both broadcast to, or nothing.
std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b);

/// Refuses inputs i and j that do not broadcast. The result is meaningless after a refusal.
Shape checked_broadcast(OpChecks& check, const InferContext& c, int64_t i, int64_t j);

/// A gradient of `shape`'s broadcast form as one of `shape`: appends "<node>/<suffix>", a SumTo,
/// unless they are alike already.
TensorId sum_to(GradientContext& c, std::string_view suffix, TensorId gradient, const Shape& shape);

}  // namespace trainyard
