// kernels/softmax_xent.h: softmax followed by cross-entropy against integer labels, against the
// distribution that smoothing makes of them, or against one that is given.
//
//   p[n,k]  = exp(z[n,k] - m[n]) / sum_j exp(z[n,j] - m[n]),   m[n] = max_j z[n,j]
//   c[n,k]  = (1 - s) w[label[n]] [k == label[n]] + (s/K) w[k],  s the smoothing, w the weights
//   loss    = -(1/W) sum_n sum_k c[n,k] log p[n,k],              W = sum_n w[label[n]]
//   dz[n,k] = (dloss/W) (p[n,k] sum_j c[n,j] - c[n,k])
//
// A given distribution t stands where [k == label[n]] does: c[n,k] = w[k] ((1 - s) t[n,k] + s/K),
// and W = sum_n sum_k w[k] t[n,k]. It has no ignored rows.
//
// Logarithms are taken from z by log-sum-exp, not from a rounded p. Rows with the ignored label
// count in no sum and have no gradient; where W is 0, because all are ignored or weigh nothing,
// loss and gradient are 0. Of a divergence, which has no weights, the entropy of c is taken off
// each row: 0 is left where p is c.
//
// Sources: Goodfellow, Bengio, Courville, "Deep Learning" (2016), sections 4.1 and 6.2.2.3;
// smoothing: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2015).
//
/// Shapes    z, dz, p (prob), t (share) [N, K], shares of 0 or more that add up to 1 in each row;
///           label [N] with values in [0, K); loss, dloss [1].
/// Units     loss in nats, mean over rows by weight.
/// Writes    all of p and loss (dz), assigned.
/// Aliasing  p may be z; dz may be p.
/// Numerics  no overflow while each row's max - min fits T; rows are summed in double, in order.
/// Errors    none of its own: the op has checked the shapes, the dataset reader the labels.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct SoftmaxXentParams {
  int64_t rows;     // N >= 1
  int64_t classes;  // K >= 2
  double smoothing = 0;
  int64_t ignored = -1;              // a label; -1: none
  std::vector<double> weights = {};  // [K]; empty: all are 1
  bool divergence = false;
};

/// Target is int32_t, of labels [N], or T, of shares [N, K].
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

/// The rows' losses are added by one thread in their order, so the thread count changes no bit.
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

/// A row's loss is summed in F32, the rows' losses in double, in an order that is always the same.
/// `weights` is p.weights in device memory, in F32; nullptr where that is empty. Launches: 2 each,
/// backward of shares 3; of labels 1 forward of up to 256 rows and 32 classes, 1 backward of up to
/// 1024 rows.
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

/// Loss and gradient of labels some rows at a time, whose z become their dz: begin, each part of
/// the rows once, end. The parts change no bit.
///
/// Numerics  z is stored in any format, and dz rounded to it; all between is F32.
/// Writes    what lies between rows may be overwritten, up to the next multiple of 4.
/// Workspace is kept from begin to end. Launches: 1 each.
struct SoftmaxXentRows {
  int64_t first, count;  // rows [first, first + count) of N
  Out z;                 // [count, K], the first row aligned as an allocation
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
