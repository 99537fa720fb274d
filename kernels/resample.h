// kernels/resample.h: a tensor whose elements are weighted sums of another tensor's elements,
// independently along each axis: padding, resizing, and the gradients of both.
//
//   y[i_1, ..., i_r] = sum over k_1, ..., k_r of w_1(i_1, k_1) ... w_r(i_r, k_r) x[k_1, ..., k_r]
//
// w_a(i, .) is a short list for each index i of axis a; most axes are copied unchanged. Where a
// list is empty, y is `fill`. A gradient uses the transposed lists, so that each of its elements is
// also assigned once.
//
/// Shapes    x and y are described by the strides of the axes, outermost first.
/// Writes    all of y, assigned.
/// Aliasing  none.
/// Numerics  sums in the order of the lists, outer axes first; a weight is the product of at most
///           two factors other than 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct ResampledAxis {
  int64_t size = 1;  // size of the axis in y
  int64_t x_stride = 0, y_stride = 0;
  /// Element i has the entries [begin[i], begin[i + 1]) of `from` and `weight`. Without lists
  /// element i is x's element i.
  std::vector<int64_t> begin = {}, from = {};
  std::vector<double> weight = {};
  bool is_plain() const { return begin.empty(); }
};

struct ResampleParams {
  std::vector<ResampledAxis> axes;  // at least one
  double fill = 0;
  /// Returns the product of the sizes of all axes except the innermost.
  int64_t rows() const {
    int64_t n = 1;
    for (size_t a = 0; a + 1 < axes.size(); ++a) n *= axes[a].size;
    return n;
  }
};

template <typename X, typename Y>
void check(const ResampleParams& p, const X& x, const Y& y) {
  Contract("resample").size("axes", std::ssize(p.axes)).given("x", x).given("y", y);
}

namespace reference {  // T is float or double
/// Computes rows [begin, end) of y.
template <typename T>
void resample(const ResampleParams& p, int64_t begin, int64_t end, const T* x, T* y);
template <typename T>
void resample(const ResampleParams& p, const T* x, T* y, Run<T> run);
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void resample(const ResampleParams& p, const float* x, float* y, Run run);
}  // namespace cpu

namespace cuda {
/// Returns the lists in the kernel's format, which the caller copies to the device and passes as
/// `tables`.
std::vector<std::byte> resample_tables(const ResampleParams& p);
void resample(const ResampleParams& p, const void* tables, In x, Out y, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
