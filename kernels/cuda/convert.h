// kernels/cuda/convert.h: y = x, element by element, between formats or within one.
//
/// Shapes    `count` elements.
/// Writes    all of y, assigned; rounded to the nearest where y has fewer bits.
/// Aliasing  none, but y may be x where both are stored alike.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {  // asynchronous; a failed launch: cudaPeekAtLastError()

void convert(int64_t count, In x, Out y, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
