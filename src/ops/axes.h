// src/ops/axes.h: helpers for ops with axes or broadcasting.
//
// Axes are numbered as in ONNX: 0..rank-1, or negative and counted from the end. Shapes broadcast
// as in numpy: aligned at the last axis, where sizes are equal or one of them is 1 or missing.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/ops/shape_helpers.h"

namespace trainyard {

constexpr int64_t kRankMax = 8;  // the same as kernels::kRankMax

/// Returns the axis as 0..rank-1; refuses an axis out of range.
int64_t checked_axis(OpChecks& check, std::string_view attribute, int64_t axis, int64_t rank);

/// Returns the axes sorted, as numbers in 0..rank-1; refuses axes out of range and duplicates.
std::vector<int64_t> checked_axes(OpChecks& check, std::string_view attribute,
                                  const std::vector<int64_t>& axes, int64_t rank);

/// Returns the shape that `a` and `b` broadcast to, or nothing if they do not broadcast.
std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b);

/// Refuses inputs i and j that do not broadcast. The result is meaningless after a refusal.
Shape checked_broadcast(OpChecks& check, const InferContext& c, int64_t i, int64_t j);

/// Reduces a gradient of broadcast shape to `shape`, the shape before broadcasting: appends a SumTo
/// node "<node>/<suffix>" unless the shapes are equal.
TensorId sum_to(GradientContext& c, std::string_view suffix, TensorId gradient, const Shape& shape);

}  // namespace trainyard
