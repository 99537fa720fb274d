// kernels/pool.h: max, average and global average pooling.
//
//   max      y[n,c,p,q] = max over the window's cells inside the image; NaN wins over every number
//            dx = dy at the first maximum of each window in the order r, s (NaN counts as maximum,
//            the last NaN of a window), 0 elsewhere; overlapping windows add up
//   average  y[n,c,p,q] = (1/D) sum over the window's cells inside the image, D = R*S if
//            count_include_pad, else the number of cells inside
//   global   y[n,c] = (1/(H*W)) sum_{h,w} x[n,c,h,w]
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"
#include "kernels/image.h"

namespace trainyard::kernels {

struct PoolDims {
  ImageDims x;  // [N, C, H, W]
  Window window;
  bool count_include_pad = false;  // average only
  ImageDims y() const { return {x.N, x.C, window.P(x.H), window.Q(x.W)}; }
  /// Whether a window's cells, numbered r * S + s, have numbers of one byte.
  bool has_byte_cells() const { return window.R * window.S <= 256; }
};

/// Shapes    x, dx [N, C, H, W], y, dy [N, C, P, Q] by strides, winner as y; global: y [N, C].
/// Winner    the number of the cell that is a window's maximum. Forward writes it unless it is
///           nullptr; backward is given either it or x. Needs PoolDims::has_byte_cells().
/// Writes    all of each output (assigned); reads none, so all may start uninitialised.
/// Aliasing  none.
/// Numerics  sums run in the order r, s (global: h, w) in T; max is exact. One image is computed by
///           one thread, so the thread count changes no bit.
/// Errors    none of its own: the op has checked that each window meets the image.
namespace reference {
template <typename T>
void max_pool_forward(const PoolDims& d, const ImageStrides& xs, const T* x, const ImageStrides& ys,
                      T* y, uint8_t* winner);
template <typename T>
void max_pool_backward(const PoolDims& d, const ImageStrides& xs, const T* x, const uint8_t* winner,
                       const ImageStrides& ys, const T* dy, T* dx);
template <typename T>
void average_pool_forward(const PoolDims& d, const ImageStrides& xs, const T* x,
                          const ImageStrides& ys, T* y);
template <typename T>
void average_pool_backward(const PoolDims& d, const ImageStrides& ys, const T* dy,
                           const ImageStrides& xs, T* dx);
template <typename T>
void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, const T* x, T* y);
template <typename T>
void global_average_pool_backward(const ImageDims& d, const T* dy, const ImageStrides& xs, T* dx);
}  // namespace reference

/// As above. Channels-last is vectorised over C; other strides take a plain loop.
namespace cpu {
class Team;  // kernels/cpu/team.h
void max_pool_forward(const PoolDims& d, const ImageStrides& xs, const float* x,
                      const ImageStrides& ys, float* y, uint8_t* winner, Team& team);
void max_pool_backward(const PoolDims& d, const ImageStrides& xs, const float* x,
                       const uint8_t* winner, const ImageStrides& ys, const float* dy, float* dx,
                       Team& team);
void average_pool_forward(const PoolDims& d, const ImageStrides& xs, const float* x,
                          const ImageStrides& ys, float* y, Team& team);
void average_pool_backward(const PoolDims& d, const ImageStrides& ys, const float* dy,
                           const ImageStrides& xs, float* dx, Team& team);
void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, const float* x,
                                 float* y, Team& team);
void global_average_pool_backward(const ImageDims& d, const float* dy, const ImageStrides& xs,
                                  float* dx, Team& team);
}  // namespace cpu

namespace cuda {  // asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError()
void max_pool_forward(const PoolDims& d, const ImageStrides& xs, In x, const ImageStrides& ys,
                      Out y, uint8_t* winner, CUstream_st* stream);
/// Without a winner.
int64_t max_pool_backward_workspace_bytes(const PoolDims& d);
void max_pool_backward(const PoolDims& d, const ImageStrides& xs, In x, const uint8_t* winner,
                       const ImageStrides& ys, In dy, Out dx, void* workspace, CUstream_st* stream);
void average_pool_forward(const PoolDims& d, const ImageStrides& xs, In x, const ImageStrides& ys,
                          Out y, CUstream_st* stream);
void average_pool_backward(const PoolDims& d, const ImageStrides& ys, In dy, const ImageStrides& xs,
                           Out dx, CUstream_st* stream);
int64_t global_average_pool_workspace_bytes(const ImageDims& d, const ImageStrides& xs);
void global_average_pool_forward(const ImageDims& d, const ImageStrides& xs, In x, Out y,
                                 void* workspace, CUstream_st* stream);
void global_average_pool_backward(const ImageDims& d, In dy, const ImageStrides& xs, Out dx,
                                  CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
