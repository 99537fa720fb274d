#include "kernels/movement.h"

#include <algorithm>

#include "kernels/arithmetic.h"
#include "kernels/cpu/simd/strided.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Returns the axis along which x is contiguous although y is contiguous along the innermost axis,
// or -1.
int transposed_axis(const Box<2>& box) {
  if (box.rank < 2 || box.run_stride()[0] <= 1 || box.run_stride()[1] != 1) return -1;
  for (int i = 0; i < box.rank - 1; ++i) {
    if (box.stride[i][0] == 1) return i;
  }
  return -1;
}

// Copies with `axis` and the innermost axis as a matrix to transpose; the other axes enumerate the
// matrices.
void copy_transposed(const Box<2>& box, int axis, const float* x, float* y, Team& team) {
  const int64_t rows = box.run();
  const int64_t columns = box.size[axis];
  const int64_t x_stride = box.run_stride()[0];
  const int64_t y_stride = box.stride[axis][1];
  Box<2> matrices;
  for (int i = 0; i < box.rank - 1; ++i) {
    if (i != axis) matrices.append(box.size[i], box.stride[i]);
  }
  // Work is divided into strips of columns, so that one large matrix is split too.
  constexpr int64_t kStrip = 64;
  const int64_t strips = (columns + kStrip - 1) / kStrip;
  team.parallel_for(matrices.elements() * strips, grain_of(rows * std::min(columns, kStrip)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t item = begin; item < end; ++item) {
                        const auto [x_at, y_at] = matrices.offsets_of(item / strips);
                        const int64_t first = item % strips * kStrip;
                        strided_loops().transpose(rows, std::min(kStrip, columns - first),
                                                  x + x_at + first, x_stride,
                                                  y + y_at + first * y_stride, y_stride);
                      }
                    });
}

}  // namespace

void copy(const Box<2>& box, const float* x, float* y, Run run) {
  check_movement(x, y);
  if (const int axis = transposed_axis(box); axis >= 0) {
    return copy_transposed(box, axis, x, y, run.team);
  }
  const Box<2>::Offsets stride = box.run_stride();
  run.team.parallel_for(box.elements(), kElementsPerThread, [&](int64_t begin, int64_t end) {
    box.for_each_run(begin, end, [&](const Box<2>::Offsets& at, int64_t count) {
      strided_loops().copy(count, x + at[0], stride[0], y + at[1], stride[1]);
    });
  });
}

void scale(const Box<2>& box, double factor, const float* x, float* y, Run run) {
  Box<3> with_factor;
  for (int k = 0; k < box.rank; ++k) {
    with_factor.append(box.size[k], {box.stride[k][0], 0, box.stride[k][1]});
  }
  const auto by = static_cast<float>(factor);
  arithmetic<math::Mul>(with_factor, x, &by, y, run);
}

void zero(const Box<2>& box, float* y, Run run) {
  static constexpr float kZero = 0;
  Box<2> written = box;
  for (int k = 0; k < box.rank; ++k) written.stride[k][0] = 0;
  copy(written, &kZero, y, run);
}

}  // namespace trainyard::kernels::cpu
