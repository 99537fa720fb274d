// kernels/cuda/convert.h: y = x, element by element, with conversion between storage formats.
//
/// Shapes    `count` elements.
/// Writes    all of y, assigned; rounded to the nearest if y has fewer bits.
/// Aliasing  none, except that y may be x if both have the same format.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {  // asynchronous; cudaPeekAtLastError() reports failures

void convert(int64_t count, In x, Out y, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
