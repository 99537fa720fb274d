// kernels/cuda/row.h: loops over the rows of a [rows, width] matrix, where a warp or a block
// processes a row, one or four adjacent elements at a time. A second pass over a row hits the L1
// cache.
#pragma once

#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {

/// The elements that a thread processes together: 1 or 4.
template <int kStep>
struct Pack {
  float v[kStep];
};
template <int kStep>
TRAINYARD_DEVICE Pack<kStep> load(const In& x, int64_t i) {
  if constexpr (kStep == 4) {
    const Four f = load4(x, i);
    return {{f.v[0], f.v[1], f.v[2], f.v[3]}};
  } else {
    return {{x[i]}};
  }
}
template <int kStep>
TRAINYARD_DEVICE void store(const Out& y, int64_t i, const Pack<kStep>& p) {
  if constexpr (kStep == 4) {
    store4(y, i, {{p.v[0], p.v[1], p.v[2], p.v[3]}});
  } else {
    y.set(i, p.v[0]);
  }
}

/// The threads that share a row, and the rows that they process: for (int64_t row = t.first(); row
/// < rows; row += t.step()).
template <bool kBlock>
struct RowThreads {
  static TRAINYARD_DEVICE int count() { return kBlock ? static_cast<int>(blockDim.x) : kWarp; }
  static TRAINYARD_DEVICE int lane() { return static_cast<int>(threadIdx.x) % count(); }
  static TRAINYARD_DEVICE int64_t first() {
    return kBlock ? int64_t{blockIdx.x} : thread_index() / kWarp;
  }
  static TRAINYARD_DEVICE int64_t step() {
    return kBlock ? int64_t{gridDim.x} : thread_count() / kWarp;
  }
  template <typename Op>
  static TRAINYARD_DEVICE float reduce(float value, Op op) {
    if constexpr (kBlock) {
      return block_reduce(value, op);
    } else {
      return warp_reduce(value, op);
    }
  }
  /// Calls f(index of the first element) for each of this thread's packs of a row.
  template <int kStep, typename F>
  static TRAINYARD_DEVICE void for_packs(int64_t width, const F& f) {
    for (int64_t i = int64_t{lane()} * kStep; i < width; i += int64_t{count()} * kStep) f(i);
  }
};

/// Whether a block processes a row, because it is long or because there are too few rows to fill a
/// GPU with one warp each.
inline bool takes_block(int64_t rows, int64_t width) {
  return width > 1024 || (width >= 256 && rows < 1024);
}

/// Calls f(block, step, grid), where block and step are integral constants for RowThreads<block>
/// and Pack<step>. `fours`: whether every row is aligned for load4.
template <typename F>
void with_rows(int64_t rows, int64_t width, bool fours, const F& f) {
  const bool block = takes_block(rows, width);
  constexpr int kWarps = kBlockThreads / kWarp;
  const Grid grid{std::min(block ? rows : (rows + kWarps - 1) / kWarps, kBlocksMax)};
  const auto with_step = [&](auto is_block) {
    if (fours) {
      f(is_block, std::integral_constant<int, 4>(), grid);
    } else {
      f(is_block, std::integral_constant<int, 1>(), grid);
    }
  };
  if (block) {
    with_step(std::bool_constant<true>());
  } else {
    with_step(std::bool_constant<false>());
  }
}

/// Parts of the rows, for sums over columns: separate threads sum each part, and then the parts are
/// added in order.
struct RowParts {
  int64_t count, rows;  // rows per part, except the last
};
inline RowParts row_parts(int64_t rows) {
  const int64_t count = std::clamp<int64_t>(rows / 64, 1, 128);
  const int64_t each = (rows + count - 1) / count;
  return {(rows + each - 1) / each, each};
}

}  // namespace trainyard::kernels::cuda
