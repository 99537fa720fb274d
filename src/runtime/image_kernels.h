// src/runtime/image_kernels.h: the dimensions that image kernels take, read off a node. Shared by
// the backends.
#pragma once

#include "kernels/batch_norm.h"
#include "kernels/conv.h"
#include "kernels/conv_transpose.h"
#include "kernels/group_norm.h"
#include "kernels/pool.h"
#include "src/graph/graph.h"
#include "src/ops/conv_transpose.h"
#include "src/ops/window.h"

namespace trainyard {

/// Strides of an activation as the plan has laid it out; rank 2 [N, C] is one pixel of C channels.
inline kernels::ImageStrides image_strides(const TensorInfo& t) {
  const kernels::ImageDims d = image_dims(t.type.shape);
  const bool channels_last = t.type.shape.rank() == 2 || t.layout == Layout::kChannelsLast;
  return channels_last ? kernels::ImageStrides::channels_last(d)
                       : kernels::ImageStrides::row_major(d);
}

/// `x` the convolution's input, `w` its weights.
inline kernels::ConvDims conv_dims(const Node& node, const TensorInfo& x, const TensorInfo& w) {
  const Shape& s = w.type.shape;
  return {image_dims(x.type.shape), s[0], window_of(node.attributes, s[2], s[3]),
          node.attributes.get_int("group", 1)};
}

inline kernels::PoolDims pool_dims(const Node& node, const Shape& x) {
  return {image_dims(x), pool_window(node.attributes, x),
          node.attributes.get_int("count_include_pad", 0) == 1};
}

inline kernels::BatchNormDims batch_norm_dims(const Node& node, const TensorInfo& x) {
  return {image_dims(x.type.shape), node.attributes.get_float("epsilon", 1e-5),
          node.attributes.get_float("momentum", 0.9)};
}

/// Images as they lie; any other rank as images of one row. `groups` by the statistics' shape.
inline kernels::GroupNormDims group_norm_dims(const Node& node, const TensorInfo& x,
                                              int64_t groups) {
  const Shape& s = x.type.shape;
  const kernels::ImageDims d =
      s.rank() == 4 ? image_dims(s)
                    : kernels::ImageDims{s[0], s[1], 1, s.elements() / (s[0] * s[1])};
  return {d, groups, node.attributes.get_float("epsilon", 1e-5)};
}
inline kernels::ImageStrides group_norm_strides(const TensorInfo& x,
                                                const kernels::GroupNormDims& d) {
  return x.type.shape.rank() == 4 ? image_strides(x) : kernels::ImageStrides::row_major(d.x);
}
/// InstanceNormalization has no num_groups: one for each channel.
inline int64_t group_count(const Node& node, const TensorInfo& x) {
  return node.attributes.get_int("num_groups", x.type.shape[1]);
}

}  // namespace trainyard
