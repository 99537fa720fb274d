// kernels/cuda/scatter_rows.h: rows added up by an index, the gradient of a table that was read by
// it, without atomic additions.
//
//   dtable[v] = sum over i with index[i] == v of weight[i / share] * dy[i / share]
//
// The indices are sorted by counting, digit by digit of 8 bits, which keeps the order of equal
// ones. Then the rows of each index lie together: runs of 32 positions are summed by threads of
// their own, and what crosses runs is added in their order.
//
/// Shapes    index [count] with values in [0, rows) or left_out; dy [count / share, width]; weight
///           [count / share], or nullptr: all are 1; dtable [rows, width].
/// Writes    all of dtable, assigned; 0 where no index names a row, and where it is left out.
/// Aliasing  none.
/// Launches  3 + 3 for each 8 bits of `rows`, or of `left_out` if that is behind them.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {  // asynchronous; a failed launch: cudaPeekAtLastError()

struct ScatterDims {
  int64_t count;  // < 2^31
  int64_t rows, width;
  int64_t share = 1;      // so many neighbouring indices have one row of dy
  int64_t left_out = -1;  // an index that does not take part, at most `rows`; -1: none
};

int64_t scatter_rows_workspace_bytes(const ScatterDims& d);
void scatter_rows(const ScatterDims& d, const int32_t* index, const float* weight, In dy,
                  Out dtable, void* workspace, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
