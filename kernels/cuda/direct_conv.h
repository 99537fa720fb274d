// kernels/cuda/direct_conv.h: convolutions that are too small for a library to fill a GPU with:
// few and small filters on small images, in one launch each (the gradient of filters: two).
//
/// Shapes    images as ConvDims says, all channels-last or all row-major; w and dw row-major.
/// Operands  both in one format; x, or dy of the gradient of x, may be F32 beside w or dy of 16
///           bits, and is rounded to them. 16 bits go through tensor cores.
/// Writes    all of the result, assigned.
/// Numerics  sums in F32, in an order that the dims decide: the same bits in every run. TF32 is
///           not used. bias and ReLU are applied to the F32 sums, and NaN stays.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/conv.h"
#include "kernels/operands.h"

namespace trainyard::kernels::cuda {  // asynchronous; a failed launch: cudaPeekAtLastError()

/// Whether they take it: one group, windows that move by one pixel and have no dilation, images in
/// and out of at most 32 x 32 pixels, filters of 2 to 121 pixels, at most 11 high and wide, with
/// C R S <= 512, and 2^30 FLOPs in all, above which a library fills a GPU.
bool takes_direct_conv(const ConvDims& d);

struct DirectConvOperands {
  In x, w;                      // [N, C, H, W], [K, C, R, S]
  const float* bias = nullptr;  // [K], optional
  bool relu = false;            // max(0, .) behind it
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
