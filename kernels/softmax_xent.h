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
#include <vector>

#include "kernels/cuda/view.h"  // CUstream_st

namespace trainyard::kernels {

struct SoftmaxXentParams {
  int64_t rows;     // N >= 1
  int64_t classes;  // K >= 2
  double smoothing = 0;
  int64_t ignored = -1;              // a label; -1: none
  std::vector<double> weights = {};  // [K]; empty: all are 1
  bool divergence = false;
};

namespace reference {  // T is float or double; Target int32_t, of labels, or T, of shares
template <typename T, typename Target>
void softmax_xent_forward(const SoftmaxXentParams& p, const T* z, const Target* target, T* loss,
                          T* prob);
template <typename T, typename Target>
void softmax_xent_backward(const SoftmaxXentParams& p, const T* prob, const Target* target,
                           const T* dloss, T* dz);
}  // namespace reference

/// The rows' losses are added by one thread in their order, so the thread count changes no bit.
namespace cpu {
class Team;  // kernels/cpu/team.h
int64_t softmax_xent_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_forward(const SoftmaxXentParams& p, const float* z, const int32_t* label,
                          float* loss, float* prob, void* workspace, Team& team);
void softmax_xent_backward(const SoftmaxXentParams& p, const float* prob, const int32_t* label,
                           const float* dloss, float* dz, Team& team);
void softmax_xent_forward(const SoftmaxXentParams& p, const float* z, const float* share,
                          float* loss, float* prob, void* workspace, Team& team);
void softmax_xent_backward(const SoftmaxXentParams& p, const float* prob, const float* share,
                           const float* dloss, float* dz, Team& team);
}  // namespace cpu

/// A row's loss is summed in F32, the rows' losses in double, in an order that is always the same.
/// `weights` is p.weights in device memory, in F32; nullptr where that is empty. Launches: 2 each,
/// backward of shares 3; of labels 1 forward of up to 256 rows and 32 classes, 1 backward of up to
/// 1024 rows.
/// Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
namespace cuda {
int64_t softmax_xent_forward_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_forward(const SoftmaxXentParams& p, const float* weights, const float* z,
                          const int32_t* label, float* loss, float* prob, void* workspace,
                          CUstream_st* stream);
int64_t softmax_xent_backward_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_backward(const SoftmaxXentParams& p, const float* weights, const float* prob,
                           const int32_t* label, const float* dloss, float* dz, void* workspace,
                           CUstream_st* stream);
void softmax_xent_forward(const SoftmaxXentParams& p, const float* weights, const float* z,
                          const float* share, float* loss, float* prob, void* workspace,
                          CUstream_st* stream);
void softmax_xent_backward(const SoftmaxXentParams& p, const float* weights, const float* prob,
                           const float* share, const float* dloss, float* dz, void* workspace,
                           CUstream_st* stream);

/// Loss and gradient of labels some rows at a time, whose z become their dz: begin, each part of
/// the rows once, end. The parts change no bit.
///
/// Shapes    z [count, K], its rows `row` elements apart, a multiple of 4, and the first aligned as
///           an allocation; label [N] always.
/// Numerics  z is stored in any format, and dz rounded to it; all between is F32.
/// Writes    what lies between rows may be overwritten, up to the next multiple of 4.
/// Workspace is kept from begin to end. Launches: 1 each.
int64_t softmax_xent_rows_workspace_bytes(const SoftmaxXentParams& p);
void softmax_xent_rows_begin(const SoftmaxXentParams& p, const float* weights, const int32_t* label,
                             void* workspace, CUstream_st* stream);
void softmax_xent_rows(const SoftmaxXentParams& p, const float* weights, int64_t first,
                       int64_t count, Out z, int64_t row, const int32_t* label, const float* dloss,
                       void* workspace, CUstream_st* stream);
void softmax_xent_rows_end(const SoftmaxXentParams& p, const float* weights, const int32_t* label,
                           float* loss, void* workspace, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
