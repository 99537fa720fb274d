// kernels/box.h: a box of elements that several operands traverse together, each with its own
// strides. Broadcasting (a stride of 0), slices, transposes and memory orders are all expressed as
// strides, so one loop serves every kernel that differs only in the addresses of its elements.
//
// Boxes are built when a kernel is prepared (src/runtime/common/boxes.h). The outermost axis comes
// first. Neighbouring axes are merged if every operand can traverse them as one axis; axes of size
// 1 are dropped.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace trainyard::kernels {

constexpr int kRankMax = 8;

template <int kOperands>
struct Box {
  using Offsets = std::array<int64_t, kOperands>;

  int rank = 0;
  int64_t size[kRankMax] = {};
  Offsets stride[kRankMax] = {};

  /// Appends an axis inside the existing ones.
  void append(int64_t count, const Offsets& strides) {
    if (count == 1) return;
    if (rank > 0) {
      bool joins = true;
      for (int k = 0; k < kOperands; ++k) joins &= stride[rank - 1][k] == count * strides[k];
      if (joins) {
        size[rank - 1] *= count;
        stride[rank - 1] = strides;
        return;
      }
    }
    size[rank] = count;
    stride[rank++] = strides;
  }

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= size[i];
    return n;
  }

  /// Returns the offset of element `index` in each operand; the innermost axis varies fastest.
  Offsets offsets_of(int64_t index) const {
    Offsets offsets{};
    for (int i = rank - 1; i >= 0; --i) {
      const int64_t at = index % size[i];
      index /= size[i];
      for (int k = 0; k < kOperands; ++k) offsets[k] += at * stride[i][k];
    }
    return offsets;
  }

  /// These return the size and strides of a run, which is the innermost axis. A box of one element
  /// has runs of one.
  int64_t run() const { return rank == 0 ? 1 : size[rank - 1]; }
  Offsets run_stride() const {
    if (rank > 0) return stride[rank - 1];
    Offsets ones;
    ones.fill(1);
    return ones;
  }

  /// Calls f(offsets, count) for each run, or part of a run, in elements [begin, end), in order.
  template <typename F>
  void for_each_run(int64_t begin, int64_t end, const F& f) const {
    if (begin >= end) return;
    const int last = rank - 1;
    int64_t index[kRankMax] = {};
    int64_t rest = begin;
    Offsets row{};  // offsets of the current run's first element
    for (int i = last; i >= 0; --i) {
      index[i] = rest % size[i];
      rest /= size[i];
      if (i == last) continue;
      for (int k = 0; k < kOperands; ++k) row[k] += index[i] * stride[i][k];
    }
    int64_t at = last < 0 ? 0 : index[last];
    const int64_t length = run();
    for (int64_t done = begin; done < end;) {
      const int64_t count = std::min(length - at, end - done);
      Offsets offsets = row;
      if (at > 0) {
        for (int k = 0; k < kOperands; ++k) offsets[k] += at * stride[last][k];
      }
      f(offsets, count);
      done += count;
      at = 0;
      for (int i = last - 1; i >= 0; --i) {
        for (int k = 0; k < kOperands; ++k) row[k] += stride[i][k];
        if (++index[i] < size[i]) break;
        for (int k = 0; k < kOperands; ++k) row[k] -= size[i] * stride[i][k];
        index[i] = 0;
      }
    }
  }
};

}  // namespace trainyard::kernels
