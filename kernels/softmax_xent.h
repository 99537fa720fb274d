// kernels/softmax_xent.h: softmax followed by cross-entropy, against integer labels (optionally
// smoothed) or against a given distribution.
//
//   p[n,k]  = exp(z[n,k] - m[n]) / sum_j exp(z[n,j] - m[n]),   m[n] = max_j z[n,j]
//   c[n,k]  = (1 - s) w[label[n]] [k == label[n]] + (s/K) w[k],  s the smoothing, w the weights
//   loss    = -(1/W) sum_n sum_k c[n,k] log p[n,k],              W = sum_n w[label[n]]
//   dz[n,k] = (dloss/W) (p[n,k] sum_j c[n,j] - c[n,k])
//
// A given distribution t replaces [k == label[n]]: c[n,k] = w[k] ((1 - s) t[n,k] + s/K), and W =
// sum_n sum_k w[k] t[n,k]. It has no ignored rows.
//
// Logarithms are computed from z by log-sum-exp, not from a rounded p. Rows with the ignored label,
// or with a label below 0, are left out of all sums and have no gradient. If W is 0, because all
// rows are ignored or have weight 0, loss and gradient are 0. With `divergence`, which allows no
// weights, the entropy of c is subtracted from each row's loss, so that the loss is 0 where p
// equals c.
//
// Sources: Goodfellow, Bengio, Courville, "Deep Learning" (2016), sections 4.1 and 6.2.2.3;
// smoothing: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2015).
//
/// Shapes    z, dz, p (prob), t (share) [N, K], where each row of t has non-negative values that
///           sum to 1; label [N] with values in [0, K), or below 0; loss, dloss [1].
/// Units     loss in nats, the weighted mean over rows.
/// Writes    all of p and loss, or all of dz; assigned.
/// Aliasing  p may be z; dz may be p.
/// Numerics  no overflow while each row's max - min fits T; rows are summed in double, in order.
/// Errors    none: the op has checked the shapes, the dataset reader the labels.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/contract.h"
#include "kernels/math/label.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct SoftmaxXentParams {
  int64_t rows;     // N >= 1
  int64_t classes;  // K >= 2
  double smoothing = 0;
  int64_t ignored = -1;              // a class whose rows are left out; -1: none
  std::vector<double> weights = {};  // [K]; empty: all are 1
  bool divergence = false;
};

/// Target is int32_t for labels [N], or T for a distribution [N, K].
template <typename T, typename Target>
struct SoftmaxXentOperands {
  const NumberOf<T>* z;  // [N, K]
  const Target* target;
  NumberOf<T>* loss;  // [1]
  NumberOf<T>* prob;  // [N, K]
};
template <typename T, typename Target>
struct SoftmaxXentGradOperands {
  const NumberOf<T>* prob;  // [N, K]
  const Target* target;
  const NumberOf<T>* dloss;  // [1]
  NumberOf<T>* dz;           // [N, K]
};

inline Contract check(const char* kernel, const SoftmaxXentParams& p) {
  const Contract contract(kernel);
  contract.size("rows", p.rows)
      .holds(p.classes >= 2, "classes", "are fewer than 2")
      .holds(p.weights.empty() || std::ssize(p.weights) == p.classes, "weights",
             "are not one for each class");
  return contract;
}
template <typename T, typename Target>
void check(const SoftmaxXentParams& p, const SoftmaxXentOperands<T, Target>& o) {
  check("softmax_xent_forward", p)
      .given("z", o.z)
      .given("target", o.target)
      .given("loss", o.loss)
      .given("prob", o.prob);
}
template <typename T, typename Target>
void check(const SoftmaxXentParams& p, const SoftmaxXentGradOperands<T, Target>& o) {
  check("softmax_xent_backward", p)
      .given("prob", o.prob)
      .given("target", o.target)
      .given("dloss", o.dloss)
      .given("dz", o.dz);
}

namespace reference {  // T is float or double
template <typename T, typename Target>
void softmax_xent_forward(const SoftmaxXentParams& p, const SoftmaxXentOperands<T, Target>& o,
                          Run<T> run = {});
template <typename T, typename Target>
void softmax_xent_backward(const SoftmaxXentParams& p, const SoftmaxXentGradOperands<T, Target>& o,
                           Run<T> run = {});
}  // namespace reference

/// One thread adds the rows' losses in order: results are bit-identical for any team size.
namespace cpu {
int64_t softmax_xent_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_forward(const SoftmaxXentParams& p, const SoftmaxXentOperands<float, int32_t>& o,
                          Run run);
void softmax_xent_backward(const SoftmaxXentParams& p,
                           const SoftmaxXentGradOperands<float, int32_t>& o, Run run);
void softmax_xent_forward(const SoftmaxXentParams& p, const SoftmaxXentOperands<float, float>& o,
                          Run run);
void softmax_xent_backward(const SoftmaxXentParams& p,
                           const SoftmaxXentGradOperands<float, float>& o, Run run);
}  // namespace cpu

/// A row's loss is summed in F32, the rows' losses in double, always in the same order. `weights`
/// is p.weights in device memory, in F32; nullptr if p.weights is empty. Launches: 2 each, 3 for
/// backward with a distribution; with labels, 1 for forward of at most 256 rows and 32 classes, and
/// 1 for backward of at most 1024 rows.
namespace cuda {
int64_t softmax_xent_forward_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_forward(const SoftmaxXentParams& p, const float* weights,
                          const SoftmaxXentOperands<Views, int32_t>& o, Run run);
int64_t softmax_xent_backward_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_backward(const SoftmaxXentParams& p, const float* weights,
                           const SoftmaxXentGradOperands<Views, int32_t>& o, Run run);
void softmax_xent_forward(const SoftmaxXentParams& p, const float* weights,
                          const SoftmaxXentOperands<Views, float>& o, Run run);
void softmax_xent_backward(const SoftmaxXentParams& p, const float* weights,
                           const SoftmaxXentGradOperands<Views, float>& o, Run run);

/// Loss and gradient with labels, for some rows at a time; dz overwrites z. Call
/// softmax_xent_rows_begin, then softmax_xent_rows for each part of the rows once, then
/// softmax_xent_rows_end. The result does not depend on the partition, bit for bit.
///
/// Numerics  z is stored in any format, and dz is rounded to that format; everything between is
///           F32.
/// Writes    all of each row: the padding behind its classes becomes 0, whatever it was.
/// Workspace  must be preserved from begin to end. Launches: 1 each.
struct SoftmaxXentRows {
  int64_t first, count;  // rows [first, first + count) of N
  Out z;                 // [count, K]; the first row has the alignment of an allocation
  int64_t row;           // elements from one row of z to the next, a multiple of 4
  const int32_t* label;  // [N]
  const float* dloss;    // [1]
};
int64_t softmax_xent_rows_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_rows_begin(const SoftmaxXentParams& p, const float* weights, const int32_t* label,
                             Run run);
void softmax_xent_rows(const SoftmaxXentParams& p, const float* weights, const SoftmaxXentRows& o,
                       Run run);
void softmax_xent_rows_end(const SoftmaxXentParams& p, const float* weights, const int32_t* label,
                           float* loss, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
