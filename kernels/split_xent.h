// kernels/split_xent.h: softmax and cross-entropy against labels (kernels/softmax_xent.h) of scores
// whose classes are split into parts, one on each of several ranks. A part has the scores of
// classes [first, first + count) for all rows, in rows of `width` columns; columns from `count` on
// are padding.
//
//   class_softmax         q[n,k] = exp(z[n,k] - m[n]) / s[n] over the part's classes only, and for
//                         each row four numbers: m, s, z of its label (0 if in another part), and
//                         u[n] = sum_k w[k] (z[n,k] - m[n]), 0 without smoothing
//   split_xent_forward    from q and the four numbers of all parts, in the order of the parts:
//                           M = max m,  S = sum s exp(m - M),  log p = z - M - log S
//                         the loss of all rows, and p[n,k] = q[n,k] s[n] exp(m[n] - M[n]) / S[n]
//   split_xent_backward   dz of this part from its p, as in softmax_xent_backward
//
/// Shapes    z, q, p, dz [N, width]; label [N] with values in [0, K); statistics (the four numbers)
///           [N, 4], of all parts [parts, N, 4]; loss, dloss [1].
/// Writes    all outputs, assigned; padding columns become 0.
/// Aliasing  q may be z; p may be q; dz may be p.
/// Numerics  the four numbers of a row are of type T; rows are summed in double, in order. A part
///           without classes, or whose scores are all -infinity, contributes nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/math/host_device.h"
#include "kernels/operands.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels {

/// Numbers per row that each part sends to the other ranks.
inline constexpr int64_t kClassStatistics = 4;

struct SplitXentParams {
  SoftmaxXentParams loss;  // parameters for all rows and all K classes; without divergence
  int64_t first = 0;       // first class
  int64_t count = 0;       // number of classes; 0 if there are fewer parts with classes than ranks
  int64_t width = 1;       // columns
  int64_t parts = 1;
  int64_t part = 0;  // index of this part
};

/// The maximum of a part that contributes nothing: the same number in every T.
template <typename T>
constexpr T kNoScore = T(-0x1p127);

/// Returns the first class of part `part`; for part + 1 also the end of `part`.
TRAINYARD_HD constexpr int64_t class_part_first(int64_t classes, int64_t width, int64_t part) {
  return part * width < classes ? part * width : classes;
}

template <typename T>
struct ClassSoftmaxOperands {
  const NumberOf<T>* z;  // [N, width]
  const int32_t* label;
  NumberOf<T>* statistics;  // [N, 4]
  NumberOf<T>* q;           // [N, width]
};
template <typename T>
struct SplitXentOperands {
  const NumberOf<T>* q;  // [N, width]
  const int32_t* label;
  const NumberOf<T>* statistics;  // [parts, N, 4]
  NumberOf<T>* loss;              // [1]
  NumberOf<T>* prob;              // [N, width]
};
template <typename T>
struct SplitXentGradOperands {
  const NumberOf<T>* prob;  // [N, width]
  const int32_t* label;
  const NumberOf<T>* dloss;  // [1]
  NumberOf<T>* dz;           // [N, width]
};

/// One row, combined over all parts.
template <typename T>
struct RowOfParts {
  T max, sum;
  T label;   // z of the label
  T smooth;  // sum_k w[k] (z[k] - max)
};
/// Combines a row's numbers of all parts. `statistics` points to those of part 0; `step` is the
/// distance in elements from part to part. exp(x) is the backend's function. `weight_of(part)`, the
/// sum of w over the part's classes, is only called if is_smooth.
template <typename T, typename Exp, typename WeightOf>
TRAINYARD_HD inline RowOfParts<T> row_of_parts(const T* statistics, int64_t step, int64_t parts,
                                               bool is_smooth, const Exp& exp,
                                               const WeightOf& weight_of) {
  RowOfParts<T> row{kNoScore<T>, T(0), T(0), T(0)};
  for (int64_t q = 0; q < parts; ++q) {
    const T max = statistics[q * step];
    // A NaN maximum is kept.
    if (max > row.max || max != max) row.max = max;
  }
  for (int64_t q = 0; q < parts; ++q) {
    const T* const s = statistics + q * step;
    if (s[0] == kNoScore<T>) continue;
    row.sum += s[1] * exp(s[0] - row.max);
    row.label += s[2];
    if (is_smooth) row.smooth += s[3] + weight_of(q) * (s[0] - row.max);
  }
  return row;
}
/// Returns the factor that turns a part's q into p.
template <typename T, typename Exp>
TRAINYARD_HD inline T factor_of_part(const T* own, const RowOfParts<T>& row, const Exp& exp) {
  const bool is_empty = own[0] == kNoScore<T>;
  return is_empty ? T(0) : own[1] * exp(own[0] - row.max) / row.sum;
}

inline Contract check(const char* kernel, const SplitXentParams& p) {
  const Contract contract = check(kernel, p.loss);
  contract.size("width", p.width)
      .size("parts", p.parts)
      .holds(p.part >= 0 && p.part < p.parts, "part", "is not one of the parts")
      .holds(p.first == class_part_first(p.loss.classes, p.width, p.part) &&
                 p.first + p.count == class_part_first(p.loss.classes, p.width, p.part + 1),
             "count", "is not that of the part's classes")
      .holds(p.parts * p.width >= p.loss.classes, "width", "is too small for all classes")
      .holds(!p.loss.divergence, "divergence", "is not supported with parts");
  return contract;
}
template <typename T>
void check(const SplitXentParams& p, const ClassSoftmaxOperands<T>& o) {
  check("class_softmax", p)
      .given("z", o.z)
      .given("label", o.label)
      .given("statistics", o.statistics)
      .given("q", o.q);
}
template <typename T>
void check(const SplitXentParams& p, const SplitXentOperands<T>& o) {
  check("split_xent_forward", p)
      .given("q", o.q)
      .given("label", o.label)
      .given("statistics", o.statistics)
      .given("loss", o.loss)
      .given("prob", o.prob);
}
template <typename T>
void check(const SplitXentParams& p, const SplitXentGradOperands<T>& o) {
  check("split_xent_backward", p)
      .given("prob", o.prob)
      .given("label", o.label)
      .given("dloss", o.dloss)
      .given("dz", o.dz);
}

namespace reference {  // T is float or double
template <typename T>
void class_softmax(const SplitXentParams& p, const ClassSoftmaxOperands<T>& o, Run<T> run = {});
template <typename T>
void split_xent_forward(const SplitXentParams& p, const SplitXentOperands<T>& o, Run<T> run = {});
template <typename T>
void split_xent_backward(const SplitXentParams& p, const SplitXentGradOperands<T>& o,
                         Run<T> run = {});
}  // namespace reference

/// One thread adds the rows' losses in order: results are bit-identical for any team size.
namespace cpu {
void class_softmax(const SplitXentParams& p, const ClassSoftmaxOperands<float>& o, Run run);
int64_t split_xent_workspace_bytes(const SplitXentParams& p);
void split_xent_forward(const SplitXentParams& p, const SplitXentOperands<float>& o, Run run);
void split_xent_backward(const SplitXentParams& p, const SplitXentGradOperands<float>& o, Run run);
}  // namespace cpu

/// `weights` is p.loss.weights in device memory, in F32; nullptr if those are empty. `part_weights`
/// [parts] is the sum of each part's weights. A row's loss is summed in F32, the rows' losses in
/// double, always in the same order. Launches: class_softmax 1, forward 2, backward 2.
namespace cuda {
void class_softmax(const SplitXentParams& p, const float* weights,
                   const ClassSoftmaxOperands<Views>& o, Run run);
int64_t split_xent_forward_workspace_bytes(const SplitXentParams& p);
void split_xent_forward(const SplitXentParams& p, const float* weights, const float* part_weights,
                        const SplitXentOperands<Views>& o, Run run);
int64_t split_xent_backward_workspace_bytes(const SplitXentParams& p);
void split_xent_backward(const SplitXentParams& p, const float* weights,
                         const SplitXentGradOperands<Views>& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
