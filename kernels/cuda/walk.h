// kernels/cuda/walk.h: traversal of boxes (kernels/box.h) by the threads of a grid. A thread
// divides its index to find its elements. The divisors are prepared on the host, so that a division
// is a multiplication and a shift; a 64-bit division would take longer than the memory access.
#pragma once

#include <bit>

#include "kernels/box.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {

/// A divisor of at least 1. Numbers n below 2^31 are divided by multiplying them by ceil(2^p /
/// value), p = 31 + ceil(log2 value), and shifting by p. The factor exceeds 2^p / value by less
/// than 1, so the result exceeds n / value by less than 2^31 / 2^p <= 1 / value, and its integer
/// part is exact.
struct Divisor {
  int64_t value = 1;
  uint32_t factor = 0, shift = 0;

  Divisor() = default;
  explicit Divisor(int64_t n) : value(n) {
    if (n < 2 || n >= int64_t{1} << 31) return;
    const auto bits = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(n - 1)));
    const uint64_t power = uint64_t{1} << (31 + bits);
    factor =
        static_cast<uint32_t>((power + static_cast<uint64_t>(n) - 1) / static_cast<uint64_t>(n));
    shift = bits - 1;
  }
  TRAINYARD_HD int64_t quotient(int64_t n) const {
    if (value == 1) return n;
    if (n < int64_t{1} << 31 && factor != 0) {
      return static_cast<int64_t>(((static_cast<uint64_t>(n) * factor) >> 32) >> shift);
    }
    return n / value;
  }
  TRAINYARD_HD int64_t remainder(int64_t n) const { return n - quotient(n) * value; }
  /// Returns the quotient of n >= 0, for a divisor below 2^31. It needs no division, and 64 bits
  /// only for the product.
  TRAINYARD_HD int32_t quotient32(int32_t n) const {
    if (value == 1) return n;
    return static_cast<int32_t>(((static_cast<uint64_t>(n) * factor) >> 32) >> shift);
  }
};

/// Traverses a box in steps of one element, or of four adjacent elements of the innermost axis.
template <int kOperands>
struct Walk {
  int64_t count = 1;  // number of steps
  int rank = 0;
  bool fours = false;
  bool single[kOperands] = {};  // with fours: one element of the operand serves all four
  Divisor size[kRankMax];
  int64_t stride[kRankMax][kOperands] = {};

  Walk() = default;
  explicit Walk(const Box<kOperands>& box) : count(box.elements()), rank(box.rank) {
    for (int i = 0; i < rank; ++i) {
      size[i] = Divisor(box.size[i]);
      for (int k = 0; k < kOperands; ++k) stride[i][k] = box.stride[i][static_cast<size_t>(k)];
    }
  }
  /// Uses steps of four if `aligned` (takes_four for every operand) and if the strides allow it.
  Walk(const Box<kOperands>& box, bool aligned) : Walk(box) {
    if (!aligned || rank == 0 || size[rank - 1].value % 4 != 0) return;
    for (int k = 0; k < kOperands; ++k) {
      const int64_t inner = stride[rank - 1][k];
      if (inner != 0 && inner != 1) return;
      for (int i = 0; i + 1 < rank; ++i) {
        if (inner == 1 && stride[i][k] % 4 != 0) return;
      }
    }
    fours = true;
    count /= 4;
    size[rank - 1] = Divisor(size[rank - 1].value / 4);
    for (int k = 0; k < kOperands; ++k) {
      single[k] = stride[rank - 1][k] == 0;
      stride[rank - 1][k] *= 4;
    }
  }

  /// The offsets of the operands at a step; the innermost axis varies fastest.
  TRAINYARD_HD void offsets(int64_t step, int64_t (&at)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
    for (int i = rank - 1; i > 0; --i) {
      const int64_t rest = size[i].quotient(step);
      const int64_t index = step - rest * size[i].value;
      for (int k = 0; k < kOperands; ++k) at[k] += index * stride[i][k];
      step = rest;
    }
    if (rank > 0) {
      for (int k = 0; k < kOperands; ++k) at[k] += step * stride[0][k];
    }
  }
  /// Returns the four elements of operand k at offset `at`.
  TRAINYARD_HD Four load(int k, const In& x, int64_t at) const {
    if (!single[k]) return load4(x, at);
    const float v = x[at];
    return {{v, v, v, v}};
  }
};

}  // namespace trainyard::kernels::cuda
