// kernels/cuda/direct_conv.h: convolutions that are too small for a library to fill a GPU with:
// few and small filters on small images, in one launch each (the gradient of filters: two).
//
/// Shapes    x, y and their gradients as ConvDims says, all channels-last or all row-major; w and
///           dw [K, C, R, S] row-major; bias and its gradient db [K], which may be nullptr.
/// Operands  both in one format; x, or dy of the gradient of x, may be F32 beside w or dy of 16
///           bits, and is rounded to them. 16 bits go through tensor cores.
/// Writes    all of the result, assigned.
/// Numerics  sums in F32, in an order that the dims decide: the same bits in every run. TF32 is
///           not used. bias and ReLU are applied to the F32 sums, and NaN stays.
#pragma once

#include <cstdint>

#include "kernels/conv.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {  // asynchronous; a failed launch: cudaPeekAtLastError()

/// Whether they take it: one group, windows that move by one pixel and have no dilation, images in
/// and out of at most 32 x 32 pixels, filters of 2 to 121 pixels, at most 11 high and wide, with
/// C R S <= 512, and 2^30 FLOPs in all, above which a library fills a GPU.
bool takes_direct_conv(const ConvDims& d);

void direct_conv_forward(const ConvDims& d, bool channels_last, In x, In w, const float* bias,
                         bool relu, Out y, CUstream_st* stream);
void direct_conv_backward_data(const ConvDims& d, bool channels_last, In dy, In w, Out dx,
                               CUstream_st* stream);
int64_t direct_conv_backward_weights_workspace_bytes(const ConvDims& d, Format operands);
void direct_conv_backward_weights(const ConvDims& d, bool channels_last, In x, In dy, Out dw,
                                  float* db, void* workspace, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
