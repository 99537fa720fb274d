// kernels/tensor_scatter.h: writes rows of keys or values into their places of a cache.
//
//   cache[n, position[n, t]] = update[n, t]
//
// A position outside of [0, S) is written nowhere. Of equal positions one after another, the last
// is written, so that a row of fewer tokens than T may repeat its last one.
//
/// Shapes    cache [N, S, W]; update [N, T, W]; position [N, T].
/// Writes    the named rows of cache, assigned; others stay.
/// Aliasing  none.
/// Errors    none: equal positions of a row that are apart from each other are the caller's error.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/host_device.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct TensorScatterDims {
  int64_t N;
  int64_t S;  // rows of the cache
  int64_t T;  // rows of the update
  int64_t W;  // elements of a row

  /// Returns the row of the cache, of all N * S, to which row `i` of all N * T updates is written;
  /// -1: nowhere.
  TRAINYARD_HD int64_t row(const int32_t* position, int64_t i) const {
    const int32_t at = position[i];
    if (at < 0 || at >= S) return -1;
    const bool is_repeated = i % T + 1 < T && position[i + 1] == at;
    return is_repeated ? -1 : i / T * S + at;
  }
};

template <typename X, typename Y>
void check(const TensorScatterDims& d, const X& update, const int32_t* position, const Y& cache) {
  Contract("tensor_scatter")
      .size("N", d.N)
      .size("S", d.S)
      .size("T", d.T)
      .size("W", d.W)
      .given("update", update)
      .given("position", position)
      .given("cache", cache);
}

namespace reference {  // T is float or double
template <typename T>
void tensor_scatter(const TensorScatterDims& d, const T* update, const int32_t* position, T* cache,
                    Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size.
namespace cpu {
void tensor_scatter(const TensorScatterDims& d, const float* update, const int32_t* position,
                    float* cache, Run run);
}  // namespace cpu

/// One launch.
namespace cuda {
void tensor_scatter(const TensorScatterDims& d, In update, const int32_t* position, Out cache,
                    Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
