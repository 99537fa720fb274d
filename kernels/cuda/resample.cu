// Access   adjacent threads write adjacent elements of y and gather from x through the caches; the
//          lists of an axis have a few KiB and stay cached. y is written once, and x is read from
//          memory once: 8 B an element of the larger of the two (4 in bf16).
// Time     bytes / 4.8 TB/s on an H200, if lists are short: upsampling 16 Mi elements to 64 Mi in
//          70 us.
#include "kernels/resample.h"

#include <cstring>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk.h"

namespace trainyard::kernels::cuda {
namespace {

/// Sizes of the buffer with the lists of all axes. It has three sections: the offsets in x, the
/// weights, and the index at which each list begins.
struct TableSizes {
  int64_t entries = 0, begins = 0;
  explicit TableSizes(const ResampleParams& p) {
    for (const ResampledAxis& a : p.axes) {
      entries += static_cast<int64_t>(a.from.size());
      begins += static_cast<int64_t>(a.begin.size());
    }
  }
  int64_t weights_at() const { return entries * static_cast<int64_t>(sizeof(int64_t)); }
  int64_t begins_at() const { return weights_at() + entries * static_cast<int64_t>(sizeof(float)); }
  int64_t bytes() const { return begins_at() + begins * static_cast<int64_t>(sizeof(int32_t)); }
};

struct Resampling {
  int64_t count = 1;
  int rank = 0, lists = 0;  // number of axes, and of axes with lists
  Divisor size[kRankMax];
  int64_t x_stride[kRankMax] = {}, y_stride[kRankMax] = {};
  int32_t list_of[kRankMax] = {};      // -1: the axis has no lists
  int64_t first_begin[kRankMax] = {};  // start of each list's part of `begin`
  const int64_t* from = nullptr;       // indices times the axis's stride in x
  const float* weight = nullptr;
  const int32_t* begin = nullptr;
  float fill = 0;
};

TRAINYARD_KERNEL void gather(Resampling r, In x, Out y) {
  for (int64_t i = thread_index(); i < r.count; i += thread_count()) {
    int32_t first[kRankMax] = {}, length[kRankMax] = {};
    int64_t x_at = 0, y_at = 0, rest = i;
    int32_t terms = 1;  // the product of all lists' lengths except the innermost
    for (int a = r.rank - 1; a >= 0; --a) {
      const int64_t outer = r.size[a].quotient(rest), index = rest - outer * r.size[a].value;
      rest = outer;
      y_at += index * r.y_stride[a];
      const int list = r.list_of[a];
      if (list < 0) {
        x_at += index * r.x_stride[a];
        continue;
      }
      const int32_t* begin = r.begin + r.first_begin[list] + index;
      first[list] = begin[0];
      length[list] = begin[1] - begin[0];
      if (list < r.lists - 1) terms *= length[list];
    }
    const int last = r.lists - 1;
    if (last < 0) {
      y.set(y_at, x[x_at]);
      continue;
    }
    if (terms == 0 || length[last] == 0) {
      y.set(y_at, r.fill);
      continue;
    }
    float sum = 0;
    for (int32_t t = 0; t < terms; ++t) {
      int64_t at = x_at;
      float weight = 1;
      int32_t index = t;
      for (int list = last - 1; list >= 0; --list) {
        const int32_t outer = index / length[list];
        const int32_t entry = first[list] + index - outer * length[list];
        index = outer;
        at += r.from[entry];
        weight *= r.weight[entry];
      }
      float inner = 0;
      for (int32_t k = first[last]; k < first[last] + length[last]; ++k) {
        inner += r.weight[k] * x[at + r.from[k]];
      }
      sum += weight * inner;
    }
    y.set(y_at, sum);
  }
}

}  // namespace

std::vector<std::byte> resample_tables(const ResampleParams& p) {
  const TableSizes sizes(p);
  std::vector<int64_t> from;
  std::vector<float> weight;
  std::vector<int32_t> begin;
  for (const ResampledAxis& a : p.axes) {
    for (const int64_t b : a.begin) {
      begin.push_back(static_cast<int32_t>(b + static_cast<int64_t>(from.size())));
    }
    for (const int64_t f : a.from) from.push_back(f * a.x_stride);
    for (const double w : a.weight) weight.push_back(static_cast<float>(w));
  }
  std::vector<std::byte> tables(static_cast<size_t>(sizes.bytes()));
  const auto put = [&](int64_t at, const auto& values) {
    if (!values.empty()) {
      std::memcpy(tables.data() + at, values.data(), values.size() * sizeof(values[0]));
    }
  };
  put(0, from);
  put(sizes.weights_at(), weight);
  put(sizes.begins_at(), begin);
  return tables;
}

void resample(const ResampleParams& p, const void* tables, In x, Out y, Run run) {
  check(p, x, y);
  Contract("resample").given("tables", tables);
  const TableSizes sizes(p);
  const auto* bytes = static_cast<const std::byte*>(tables);
  Resampling r;
  r.from = reinterpret_cast<const int64_t*>(bytes);
  r.weight = reinterpret_cast<const float*>(bytes + sizes.weights_at());
  r.begin = reinterpret_cast<const int32_t*>(bytes + sizes.begins_at());
  r.fill = static_cast<float>(p.fill);
  int64_t begins = 0;
  bool was_plain = false;
  for (const ResampledAxis& a : p.axes) {
    r.count *= a.size;
    const int before = r.rank - 1;
    // Adjacent axes without lists are merged if they can be traversed as one axis.
    if (a.is_plain() && was_plain && r.x_stride[before] == a.size * a.x_stride &&
        r.y_stride[before] == a.size * a.y_stride) {
      r.size[before] = Divisor(r.size[before].value * a.size);
      r.x_stride[before] = a.x_stride;
      r.y_stride[before] = a.y_stride;
      continue;
    }
    was_plain = a.is_plain();
    r.size[r.rank] = Divisor(a.size);
    r.x_stride[r.rank] = a.x_stride;
    r.y_stride[r.rank] = a.y_stride;
    r.list_of[r.rank] = was_plain ? -1 : r.lists;
    if (!was_plain) r.first_begin[r.lists++] = begins;
    begins += static_cast<int64_t>(a.begin.size());
    ++r.rank;
  }
  launch(grid_for(r.count), run.stream, gather, r, x, y);
}

}  // namespace trainyard::kernels::cuda
