#include "src/runtime/common/resampling.h"

#include <algorithm>

#include "src/ops/pad.h"
#include "src/ops/resize.h"
#include "src/runtime/common/boxes.h"
#include "src/runtime/common/kernel_table.h"

namespace trainyard {
namespace {

struct Entry {
  int64_t from;
  double weight;
};
/// For each element of an axis, the elements and weights that are summed; empty: the axis is not
/// resampled.
using Lists = std::vector<std::vector<Entry>>;

/// Returns the transposed map: for each of the `size` elements of x, the elements to which it
/// contributes.
Lists transposed(const Lists& lists, int64_t size) {
  if (lists.empty()) return {};
  Lists result(static_cast<size_t>(size));
  for (size_t i = 0; i < lists.size(); ++i) {
    for (const auto& [from, weight] : lists[i]) {
      result[static_cast<size_t>(from)].push_back({static_cast<int64_t>(i), weight});
    }
  }
  return result;
}

/// The result's axes are in the memory order of the written tensor; `lists` is by logical axis.
kernels::ResampleParams make_params(const TensorInfo& x, const TensorInfo& y,
                                    const std::vector<Lists>& lists) {
  const std::vector<int64_t> x_strides = strides_of(x), y_strides = strides_of(y);
  kernels::ResampleParams p;
  for (const int64_t axis : memory_order(y)) {
    const auto i = static_cast<size_t>(axis);
    kernels::ResampledAxis a{y.type.shape[axis], x_strides[i], y_strides[i]};
    if (!lists[i].empty()) a.begin.push_back(0);
    for (const std::vector<Entry>& list : lists[i]) {
      for (const auto& [from, weight] : list) {
        a.from.push_back(from);
        a.weight.push_back(weight);
      }
      a.begin.push_back(static_cast<int64_t>(a.from.size()));
    }
    p.axes.push_back(std::move(a));
  }
  return p;
}

std::vector<Lists> transposed(const std::vector<Lists>& lists, const Shape& x) {
  std::vector<Lists> result;
  for (size_t i = 0; i < lists.size(); ++i) result.push_back(transposed(lists[i], x.dims()[i]));
  return result;
}

std::vector<Lists> pad_lists(const Attributes& attributes, const Shape& x) {
  const std::string mode = attributes.get_string("mode", "constant");
  std::vector<Lists> result;
  const std::vector<AxisPads> pads = axis_pads(attributes, x);
  for (size_t a = 0; a < pads.size(); ++a) {
    const auto [before, behind] = pads[a];
    const int64_t size = x.dims()[a];
    Lists lists;
    if (before + behind > 0) lists.resize(static_cast<size_t>(before + size + behind));
    for (size_t i = 0; i < lists.size(); ++i) {
      int64_t from = static_cast<int64_t>(i) - before;
      if (mode == "constant" && (from < 0 || from >= size)) continue;
      if (mode == "reflect") {
        from = from < 0 ? -from : from;
        from = from >= size ? 2 * (size - 1) - from : from;
      }
      lists[i] = {{std::clamp<int64_t>(from, 0, size - 1), 1}};
    }
    result.push_back(std::move(lists));
  }
  return result;
}

std::vector<Lists> resize_lists(const Attributes& attributes, const Shape& x, const Shape& y) {
  std::vector<Lists> result(4);
  for (const int64_t axis : {2, 3}) {
    Lists& lists = result[static_cast<size_t>(axis)];
    for (int64_t i = 0; i < y[axis]; ++i) {
      const ResizedRow row = resized_row(attributes, x[axis], y[axis], i);
      // An element with a share of 0 is omitted, since it may be infinite.
      std::vector<Entry> list;
      if (row.upper_share < 1) list.push_back({row.lower, 1 - row.upper_share});
      if (row.upper_share > 0) list.push_back({row.upper, row.upper_share});
      lists.push_back(std::move(list));
    }
  }
  return result;
}

}  // namespace

kernels::ResampleParams pad_params(const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  auto p = make_params(x, output_info(g, n, 0), pad_lists(n.attributes, x.type.shape));
  p.fill = n.attributes.get_float("value", 0);
  return p;
}

kernels::ResampleParams pad_grad_params(const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const Shape& x = dx.type.shape;
  return make_params(input_info(g, n, 0), dx, transposed(pad_lists(n.attributes, x), x));
}

kernels::ResampleParams resize_params(const Graph& g, const Node& n) {
  const TensorInfo &x = input_info(g, n, 0), &y = output_info(g, n, 0);
  return make_params(x, y, resize_lists(n.attributes, x.type.shape, y.type.shape));
}

kernels::ResampleParams resize_grad_params(const Graph& g, const Node& n) {
  const TensorInfo &dy = input_info(g, n, 0), &dx = output_info(g, n, 0);
  const Shape& x = dx.type.shape;
  return make_params(dy, dx, transposed(resize_lists(n.attributes, x, dy.type.shape), x));
}

}  // namespace trainyard
