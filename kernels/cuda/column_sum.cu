// Access   adjacent threads read adjacent columns, so that whole cache lines of a row are read; one
//          pass over x, 4 B an element (2 in bf16).
// Time     bytes / 4.8 TB/s on an H200: [8192, 3072] in F32 in 21 us, plus a launch that adds the
//          parts.
#include "kernels/cuda/column_sum.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

constexpr int64_t kRowsPerPart = 64;
constexpr int64_t kPartsMax = 512;

struct Parts {
  int64_t count, rows;  // rows per part, except the last
};
Parts parts_of(int64_t rows) {
  const int64_t count = std::clamp<int64_t>(rows / kRowsPerPart, 1, kPartsMax);
  const int64_t each = (rows + count - 1) / count;
  return {(rows + each - 1) / each, each};
}

// Thread (part, j) sums the rows of a part in column j.
TRAINYARD_KERNEL void sum_parts(int64_t rows, int64_t columns, int64_t row, Parts parts, In x,
                                float* out) {
  const int64_t all = parts.count * columns;
  for (int64_t i = thread_index(); i < all; i += thread_count()) {
    const int64_t part = i / columns, j = i % columns;
    const int64_t end = std::min(rows, (part + 1) * parts.rows);
    float sum = 0;
    for (int64_t r = part * parts.rows; r < end; ++r) sum += x[r * row + j];
    out[i] = sum;
  }
}

}  // namespace

int64_t column_sum_workspace_bytes(int64_t rows, int64_t columns) {
  const int64_t parts = parts_of(rows).count;
  return parts > 1 ? parts * columns * static_cast<int64_t>(sizeof(float)) : 0;
}

void column_sum(int64_t rows, int64_t columns, In x, float* out, void* workspace,
                CUstream_st* stream, int64_t row) {
  const Parts parts = parts_of(rows);
  if (row == 0) row = columns;
  if (parts.count == 1) {
    launch(grid_for(columns), stream, sum_parts, rows, columns, row, parts, x, out);
    return;
  }
  auto* const of_part = static_cast<float*>(workspace);
  launch(grid_for(parts.count * columns), stream, sum_parts, rows, columns, row, parts, x, of_part);
  launch(grid_for(columns), stream, sum_parts, parts.count, columns, columns, Parts{1, parts.count},
         In{of_part}, out);
}

}  // namespace trainyard::kernels::cuda
