// src/runtime/common/boxes.h: the boxes (kernels/box.h) that kernels walk, made from the shapes,
// layouts and attributes of a node. What is broadcast, where an axis lies in memory and which way a
// transpose goes is decided here, once, for all backends.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/box.h"
#include "kernels/reduce.h"
#include "src/graph/graph.h"

namespace trainyard {

/// Elements between neighbours along each axis, in logical order, of a dense tensor.
std::vector<int64_t> strides_of(const TensorInfo& t);

/// Logical axes from the outermost in memory to the innermost: 0, 2, 3, 1 for channels-last.
std::vector<int64_t> memory_order(const TensorInfo& t);

/// Strides of `t` along the axes of `to`, which its shape broadcasts to: 0 where it has one element
/// for many.
std::vector<int64_t> broadcast_strides(const TensorInfo& t, const Shape& to);

/// An axis as ONNX writes it, negative ones counted from the end, as 0..rank-1.
constexpr int64_t positive_axis(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

/// A box of `size`, walked in `order`; operand k has strides[k] along the logical axes.
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

/// y = f(inputs), all broadcast to y; the inputs come first, y last.
kernels::Box<2> broadcast_box(const TensorInfo& x, const TensorInfo& y);
kernels::Box<3> broadcast_box(const TensorInfo& a, const TensorInfo& b, const TensorInfo& y);

/// Reductions: strides of `y` along the axes of x, 0 along those that are gone or have size 1.
std::vector<int64_t> reduced_strides(const TensorInfo& y, int64_t x_rank,
                                     const std::vector<int64_t>& axes);
/// The boxes of y = reduce(x), `y_strides` as above or as of broadcast_strides(y, x's shape).
kernels::ReduceParams reduce_params(const TensorInfo& x, const TensorInfo& y,
                                    const std::vector<int64_t>& y_strides);

/// Transpose: y[i_0, ...] = x[i with i_perm(k) at axis perm(k)].
kernels::Box<2> transpose_box(const TensorInfo& x, const TensorInfo& y,
                              std::span<const int64_t> perm);

/// A copy between a tensor and a part of another: `part` begins in `whole` at the element `offset`
/// and goes on in its steps. Operand 0 is what is read.
struct PartBox {
  kernels::Box<2> box;
  int64_t offset = 0;  // in elements, of the whole
};
/// Parts of equal rank, `first[i]` and `step[i]` along axis i.
PartBox part_box(const TensorInfo& whole, const TensorInfo& part, std::span<const int64_t> first,
                 std::span<const int64_t> step, bool part_is_read);

}  // namespace trainyard
