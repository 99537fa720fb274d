#include "src/runtime/common/boxes.h"

#include <numeric>

#include "src/base/check.h"

namespace trainyard {

std::vector<int64_t> memory_order(const TensorInfo& t) {
  if (t.layout == Layout::kChannelsLast) return {0, 2, 3, 1};
  std::vector<int64_t> order(t.type.shape.dims().size());
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> strides_of(const TensorInfo& t) {
  const std::vector<int64_t> order = memory_order(t);
  std::vector<int64_t> strides(order.size());
  int64_t next = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[static_cast<size_t>(*axis)] = next;
    next *= t.type.shape[*axis];
  }
  return strides;
}

std::vector<int64_t> broadcast_strides(const TensorInfo& t, const Shape& to) {
  const std::vector<int64_t> own = strides_of(t);
  const int64_t missing = to.rank() - t.type.shape.rank();
  TRAINYARD_CHECK(missing >= 0, t.name + " does not broadcast to " + to.to_string());
  std::vector<int64_t> strides(static_cast<size_t>(to.rank()), 0);
  for (int64_t i = missing; i < to.rank(); ++i) {
    const auto k = static_cast<size_t>(i - missing);
    if (t.type.shape[i - missing] == to[i]) strides[static_cast<size_t>(i)] = own[k];
  }
  return strides;
}

kernels::Box<2> broadcast_box(const TensorInfo& x, const TensorInfo& y) {
  const Shape& to = y.type.shape;
  return make_box<2>(to.dims(), memory_order(y), {broadcast_strides(x, to), strides_of(y)});
}

kernels::Box<3> broadcast_box(const TensorInfo& a, const TensorInfo& b, const TensorInfo& y) {
  const Shape& to = y.type.shape;
  return make_box<3>(to.dims(), memory_order(y),
                     {broadcast_strides(a, to), broadcast_strides(b, to), strides_of(y)});
}

std::vector<int64_t> reduced_strides(const TensorInfo& y, int64_t x_rank,
                                     const std::vector<int64_t>& axes) {
  std::vector<bool> reduced(static_cast<size_t>(x_rank));
  for (const int64_t axis : axes) reduced[static_cast<size_t>(positive_axis(axis, x_rank))] = true;
  const std::vector<int64_t> own = strides_of(y);
  const bool kept_dims = y.type.shape.rank() == x_rank;
  std::vector<int64_t> strides;
  size_t next = 0;  // next axis of y
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (!reduced[i]) {
      strides.push_back(own[kept_dims ? i : next]);
      ++next;
    } else {
      strides.push_back(0);
    }
  }
  return strides;
}

kernels::ReduceParams reduce_params(const TensorInfo& x, const TensorInfo& y,
                                    const std::vector<int64_t>& y_strides) {
  const std::vector<int64_t> x_strides = strides_of(x);
  kernels::ReduceParams p;
  for (const int64_t axis : memory_order(x)) {
    const auto i = static_cast<size_t>(axis);
    if (y_strides[i] == 0) {
      p.reduced.append(x.type.shape[axis], {x_strides[i]});
    } else {
      p.kept.append(x.type.shape[axis], {x_strides[i], y_strides[i]});
    }
  }
  TRAINYARD_CHECK(p.kept.elements() == y.type.shape.elements(),
                  y.name + " is not what is left of " + x.name);
  return p;
}

kernels::Box<2> transpose_box(const TensorInfo& x, const TensorInfo& y,
                              std::span<const int64_t> perm) {
  const std::vector<int64_t> x_strides = strides_of(x);
  std::vector<int64_t> permuted;
  for (const int64_t axis : perm) permuted.push_back(x_strides[static_cast<size_t>(axis)]);
  return make_box<2>(y.type.shape.dims(), memory_order(y), {permuted, strides_of(y)});
}

PartBox part_box(const TensorInfo& whole, const TensorInfo& part, std::span<const int64_t> first,
                 std::span<const int64_t> step, bool part_is_read) {
  std::vector<int64_t> strides = strides_of(whole);
  PartBox result;
  for (size_t i = 0; i < strides.size(); ++i) {
    result.offset += first[i] * strides[i];
    strides[i] *= step[i];
  }
  const std::vector<int64_t> own = strides_of(part);
  const std::vector<int64_t>& size = part.type.shape.dims();
  // The box is iterated in the memory order of the written tensor.
  result.box = part_is_read ? make_box<2>(size, memory_order(whole), {own, strides})
                            : make_box<2>(size, memory_order(part), {strides, own});
  return result;
}

}  // namespace trainyard
