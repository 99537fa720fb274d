// kernels/conv_transpose.h: transposed convolution (ONNX ConvTranspose): a layer whose forward pass
// is the data gradient of a convolution.
//
//   y[n,k,h,w]  = b[k] + sum_{c,r,s} x[n,c,p,q] * w[c,k,r,s]
//                 over all p, q, r, s with p*sh - pt + r*eh = h and q*sw - pl + s*ew = w
//   dx, dw      are the output and the weight gradient of that convolution, with dy as its image
//   db[k]       = sum_{n,h,w} dy[n,k,h,w]
//
// All functions take the ConvDims of that convolution, which runs in the opposite direction: its
// image is this layer's output [N, K, H, W], its output is this layer's input [N, C, P, Q], and its
// weights are w [C, K/G, R, S].
//
// Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016), chapter
// 4.
#pragma once

#include <cstdint>

#include "kernels/conv.h"

namespace trainyard::kernels {

/// Shapes    x, dx [N, C, P, Q], y, dy [N, K, H, W] by strides; w, dw [C, K/G, R, S]; b, db [K] or
///           nullptr.
/// Writes    all of each output (assigned); no output is read.
/// Aliasing  none.
/// Numerics  as conv.h; db sums in T over n, h, w (cpu: over fixed blocks, which are added in
///           order).
/// Errors    none: the op has checked the shapes.
namespace reference {
template <typename T>
void conv_transpose_forward(const ConvDims& d, const ImageStrides& xs, const T* x, const T* w,
                            const T* b, const ImageStrides& ys, T* y);
template <typename T>
void conv_transpose_backward_data(const ConvDims& d, const ImageStrides& ys, const T* dy,
                                  const T* w, const ImageStrides& xs, T* dx);
template <typename T>
void conv_transpose_backward_weights(const ConvDims& d, const ImageStrides& xs, const T* x,
                                     const ImageStrides& ys, const T* dy, T* dw, T* db);
}  // namespace reference

/// Computes the same as namespace reference, built from the prepared convolutions of conv.h. x and
/// y are both channels-last or both row-major. With options.bias forward adds b. Results are
/// bit-identical for teams of the same size.
namespace cpu {
class ConvTransposeForward {
 public:
  ConvTransposeForward(const ConvDims& d, const ConvOptions& options, Team& team);
  int64_t workspace_bytes() const { return conv_.workspace_bytes(); }
  void run(const float* x, const float* w, const float* b, float* y, void* workspace);

 private:
  ConvDims d_;
  bool channels_last_;
  Team& team_;
  ConvBackwardData conv_;
};

class ConvTransposeBackwardData {
 public:
  ConvTransposeBackwardData(const ConvDims& d, bool channels_last, Team& team)
      : conv_(d, {channels_last, /*bias=*/false}, team) {}
  int64_t workspace_bytes() const { return conv_.workspace_bytes(); }
  void run(const float* dy, const float* w, float* dx, void* workspace) {
    conv_.run(dy, w, nullptr, dx, workspace);
  }

 private:
  ConvForward conv_;
};

class ConvTransposeBackwardWeights {
 public:
  ConvTransposeBackwardWeights(const ConvDims& d, bool channels_last, Team& team)
      : conv_(d, {channels_last, /*bias=*/false}, team) {}
  int64_t workspace_bytes() const { return conv_.workspace_bytes(); }
  void run(const float* x, const float* dy, float* dw, void* workspace) {
    conv_.run(dy, x, dw, nullptr, workspace);
  }

 private:
  ConvBackwardWeights conv_;
};

/// db[k] = sum of dy over n, h and w.
int64_t image_bias_workspace_bytes(const ImageDims& dy);
void image_bias_gradient(const ImageDims& d, bool channels_last, const float* dy, float* db,
                         void* workspace, Team& team);
}  // namespace cpu

}  // namespace trainyard::kernels
