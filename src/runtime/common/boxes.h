// src/runtime/common/boxes.h: computes the boxes (kernels/box.h) that kernels iterate over from a
// node's shapes, layouts and attributes. This is the only code, for all backends, that resolves
// broadcasting, the order of axes in memory and transposition.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/box.h"
#include "kernels/reduce.h"
#include "src/graph/graph.h"

namespace trainyard {

/// Returns the strides of a dense tensor in elements, for its axes in logical order.
std::vector<int64_t> strides_of(const TensorInfo& t);

/// Returns the logical axes from the outermost in memory to the innermost: 0, 2, 3, 1 for
/// channels-last.
std::vector<int64_t> memory_order(const TensorInfo& t);

/// Returns the strides of `t` along the axes of `to`, to which it broadcasts: 0 along broadcast
/// axes.
std::vector<int64_t> broadcast_strides(const TensorInfo& t, const Shape& to);

/// Converts an axis in ONNX's form, where negative ones count from the end, to 0..rank-1.
constexpr int64_t positive_axis(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

/// Returns a box of `size` whose axes are iterated in `order`. Operand k has the strides
/// strides[k], given in logical order.
template <int kOperands>
kernels::Box<kOperands> make_box(const std::vector<int64_t>& size,
                                 const std::vector<int64_t>& order,
                                 const std::array<std::vector<int64_t>, kOperands>& strides) {
  kernels::Box<kOperands> box;
  for (const int64_t axis : order) {
    const auto i = static_cast<size_t>(axis);
    typename kernels::Box<kOperands>::Offsets along;
    for (size_t k = 0; k < kOperands; ++k) along[k] = strides[k][i];
    box.append(size[i], along);
  }
  return box;
}

/// Returns the box of y = f(inputs), with all inputs broadcast to y. The operands are the inputs,
/// then y.
kernels::Box<2> broadcast_box(const TensorInfo& x, const TensorInfo& y);
kernels::Box<3> broadcast_box(const TensorInfo& a, const TensorInfo& b, const TensorInfo& y);

/// Returns, for reductions, the strides of `y` along the axes of x, 0 along the reduced axes.
std::vector<int64_t> reduced_strides(const TensorInfo& y, int64_t x_rank,
                                     const std::vector<int64_t>& axes);
/// Returns the boxes of y = reduce(x). `y_strides` comes from reduced_strides(), or from
/// broadcast_strides(y, x's shape).
kernels::ReduceParams reduce_params(const TensorInfo& x, const TensorInfo& y,
                                    const std::vector<int64_t>& y_strides);

/// Returns the box of Transpose: y[i_0, ...] = x[i with i_perm(k) at axis perm(k)].
kernels::Box<2> transpose_box(const TensorInfo& x, const TensorInfo& y,
                              std::span<const int64_t> perm);

/// A copy between a tensor and a part of another tensor: `part` starts at element `offset` of
/// `whole` and advances by the given steps. Operand 0 is the source.
struct PartBox {
  kernels::Box<2> box;
  int64_t offset = 0;  // element offset in the whole tensor
};
/// `whole` and `part` have equal rank; first[i] and step[i] are along axis i. If `part_is_read`,
/// the part is the source, else the whole.
PartBox part_box(const TensorInfo& whole, const TensorInfo& part, std::span<const int64_t> first,
                 std::span<const int64_t> step, bool part_is_read);

}  // namespace trainyard
