// kernels/cuda/scatter_rows.h: adds up rows by index, without atomic additions: the gradient of a
// table lookup.
//
//   dtable[v] = sum over i with index[i] == v of weight[i / share] * dy[i / share]
//
// The indices are sorted by a radix sort with digits of 8 bits, which is stable. Then the rows of
// each index are adjacent: separate threads sum runs of 32 positions, and sums of indices that span
// several runs are added in the order of the runs.
//
/// Shapes    index [count] with values in [0, rows) or left_out; dy [count / share, width]; weight
///           [count / share], or nullptr if all weights are 1; dtable [rows, width].
/// Writes    all of dtable, assigned; rows named by no index, and row left_out, become 0.
/// Aliasing  none.
/// Launches  3, and 3 more for each 8 bits of the largest index: rows - 1, or left_out if larger.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {  // asynchronous; cudaPeekAtLastError() reports failures

struct ScatterDims {
  int64_t count;  // < 2^31
  int64_t rows, width;
  int64_t share = 1;      // this many adjacent indices share one row of dy
  int64_t left_out = -1;  // an index that is ignored, at most `rows`; -1: none
};

int64_t scatter_rows_workspace_bytes(const ScatterDims& d);
void scatter_rows(const ScatterDims& d, const int32_t* index, const float* weight, In dy,
                  Out dtable, void* workspace, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
