// kernels/conv.h: two-dimensional convolution (correlation, as ONNX Conv).
//
//   y[n,k,p,q]  = b[k] + sum_{c,r,s} x[n, c, p*sh - pt + r*eh, q*sw - pl + s*ew] * w[k,c,r,s]
//   dx[n,c,h,w] = sum_{k,r,s} dy[n,k,p,q] * w[k,c,r,s]   over all p*sh - pt + r*eh = h (w likewise)
//   dw[k,c,r,s] = sum_{n,p,q} dy[n,k,p,q] * x[n, c, p*sh - pt + r*eh, q*sw - pl + s*ew]
//   db[k]       = sum_{n,p,q} dy[n,k,p,q]
// x is 0 outside the image; eh, ew are the dilations. With G groups, filter k only reads the C/G
// channels of its group k / (K/G), and w has the shape [K, C/G, R, S].
//
// Source: Goodfellow, Bengio, Courville, "Deep Learning" (2016), section 9.5.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/image.h"

namespace trainyard::kernels {

struct ConvDims {
  ImageDims x;  // [N, C, H, W]
  int64_t K;    // output channels
  Window window;
  int64_t group = 1;  // divides C and K
  ImageDims y() const { return {x.N, K, window.P(x.H), window.Q(x.W)}; }
  int64_t group_channels() const { return x.C / group; }
  int64_t weight_elements() const { return K * group_channels() * window.R * window.S; }
  /// Returns the FLOPs: a multiply-add counts as 2, and padding counts like data.
  int64_t flops() const { return 2 * y().elements() * group_channels() * window.R * window.S; }
};

/// Shapes    x [N, C, H, W], y [N, K, P, Q] by strides; w [K, C/G, R, S] row-major; b [K] or
///           nullptr.
/// Writes    all of each output (assigned, never added to). No output is read, so all may be
///           uninitialized. dw and db may be nullptr if not wanted.
/// Aliasing  none.
/// Numerics  reference sums in T, in the order c, r, s (forward), k, r, s (dx), n, p, q (dw).
/// Errors    none: the op has checked the shapes.
namespace reference {
template <typename T>
void conv_forward(const ConvDims& d, const ImageStrides& xs, const T* x, const T* w, const T* b,
                  const ImageStrides& ys, T* y);
template <typename T>
void conv_backward_data(const ConvDims& d, const ImageStrides& ys, const T* dy, const T* w,
                        const ImageStrides& xs, T* dx);
template <typename T>
void conv_backward_weights(const ConvDims& d, const ImageStrides& xs, const T* x,
                           const ImageStrides& ys, const T* dy, T* dw, T* db);
}  // namespace reference

/// Computes the same as namespace reference, with prepared objects: the constructor chooses the
/// implementation and its internal weight format, and run() computes. Each run converts the weights
/// into that format in the workspace. x and y are both channels-last or both row-major;
/// channels-last is faster. Results are bit-identical for teams of the same size. `workspace` is
/// 64-byte aligned. Not thread-safe.
namespace cpu {
class Team;  // kernels/cpu/team.h
/// kDirect: oneDNN's convolution. kColumns: a matrix product over patches (conv_columns.h), only
/// for channels-last images without groups or dilations. kByShape: whichever of kDirect and
/// kColumns suits the shape.
enum class ConvAlgorithm : uint8_t { kByShape, kDirect, kColumns };

struct ConvOptions {
  bool channels_last = true;
  bool bias = true;                                   // forward adds b; backward can compute db
  ConvAlgorithm algorithm = ConvAlgorithm::kByShape;  // the others are for tests and benchmarks
};

class ConvForward {
 public:
  ConvForward(const ConvDims& d, const ConvOptions& options, Team& team);
  ~ConvForward();
  int64_t workspace_bytes() const;
  void run(const float* x, const float* w, const float* b, float* y, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ConvBackwardData {
 public:
  ConvBackwardData(const ConvDims& d, const ConvOptions& options, Team& team);
  ~ConvBackwardData();
  int64_t workspace_bytes() const;
  void run(const float* dy, const float* w, float* dx, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// db may be requested if options.bias; dw is always computed.
class ConvBackwardWeights {
 public:
  ConvBackwardWeights(const ConvDims& d, const ConvOptions& options, Team& team);
  ~ConvBackwardWeights();
  int64_t workspace_bytes() const;
  void run(const float* x, const float* dy, float* dw, float* db, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
}  // namespace cpu

}  // namespace trainyard::kernels
