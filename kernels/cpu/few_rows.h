// kernels/cpu/few_rows.h: y = x w^T + b (kernels/gemm.h) for so few rows of x that the time is that
// of reading w from memory, as in generation. w is read once, in its stored type, by all threads.
#pragma once

#include <cstdint>

#include "kernels/cpu/team.h"
#include "kernels/gemm.h"

namespace trainyard::kernels::cpu {

/// d.N is at most kFewRowsMax. The bits of a row of y depend neither on the other rows, nor on the
/// size of the team, nor on whether w is stored in 16 bits.
void multiply_few_rows(const GemmDims& d, Stored stored, const float* x, const void* w,
                       const float* b, float* y, Team& team);

}  // namespace trainyard::kernels::cpu
