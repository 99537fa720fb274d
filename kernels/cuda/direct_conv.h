// kernels/cuda/direct_conv.h: convolutions that are too small for a library to use a whole GPU: few
// and small filters on small images. One launch each; two for the gradient of filters.
//
/// Shapes    images as ConvDims says, all channels-last or all row-major; w and dw row-major.
/// Operands  both operands have one format, except that x (or dy, for the gradient of x) may be F32
///           if w (or dy) has 16 bits; it is then rounded to the 16-bit format. 16-bit operands use
///           tensor cores.
/// Writes    all of the result, assigned.
/// Numerics  sums in F32, in an order that depends only on the dims: bit-identical in every run.
///           TF32 is not used. bias and ReLU are applied to the F32 sums, and NaN is propagated.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/conv.h"
#include "kernels/operands.h"

namespace trainyard::kernels::cuda {  // asynchronous; cudaPeekAtLastError() reports failures

/// Whether these kernels support the convolution: one group, stride 1, no dilation, images and
/// results of at most 32 x 32 pixels, filters of 2 to 121 pixels, at most 11 high and wide, with C
/// R S <= 512, and at most 2^30 FLOPs, above which a library uses a whole GPU.
bool supports_direct_conv(const ConvDims& d);

struct DirectConvOperands {
  In x, w;                      // [N, C, H, W], [K, C, R, S]
  const float* bias = nullptr;  // [K], optional
  bool relu = false;            // max(0, .) is applied to the result
  Out y;                        // [N, K, P, Q]
};
void direct_conv_forward(const ConvDims& d, bool channels_last, const DirectConvOperands& o,
                         Run run);
void direct_conv_backward_data(const ConvDims& d, bool channels_last, In dy, In w, Out dx, Run run);
int64_t direct_conv_backward_weights_workspace_bytes(const ConvDims& d, Format operands);
struct DirectConvGradOperands {
  In x, dy;             // [N, C, H, W], [N, K, P, Q]
  Out dw;               // [K, C, R, S]
  float* db = nullptr;  // [K], optional
};
void direct_conv_backward_weights(const ConvDims& d, bool channels_last,
                                  const DirectConvGradOperands& o, Run run);

}  // namespace trainyard::kernels::cuda
