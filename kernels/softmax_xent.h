// kernels/softmax_xent.h: softmax followed by cross-entropy against integer labels.
//
//   p[n,k]  = exp(z[n,k] - m[n]) / sum_j exp(z[n,j] - m[n]),   m[n] = max_j z[n,j]
//   loss    = -(1/N) sum_n log p[n, label[n]], taken from z by log-sum-exp, not from a rounded p
//   dz[n,k] = dloss (p[n,k] - [k == label[n]]) / N
//
// Source: Goodfellow, Bengio, Courville, "Deep Learning" (2016), sections 4.1 and 6.2.2.3.
//
/// Shapes    z, dz, p [N, K]; label [N] with values in [0, K); loss, dloss [1].
/// Units     loss in nats, mean over rows.
/// Writes    all of p and loss (dz), assigned.
/// Aliasing  p may be z; dz may be p.
/// Numerics  no overflow while each row's max - min fits T; rows are summed in double, in order.
/// Errors    none of its own: the op has checked the shapes, the dataset reader the labels.
#pragma once

#include <cstdint>

namespace trainyard::kernels {

struct SoftmaxXentDims {
  int64_t rows;     // N >= 1
  int64_t classes;  // K >= 2
};

namespace reference {  // T is float or double
template <typename T>
void softmax_xent_forward(SoftmaxXentDims d, const T* z, const int32_t* label, T* loss, T* p);
template <typename T>
void softmax_xent_backward(SoftmaxXentDims d, const T* p, const int32_t* label, const T* dloss,
                           T* dz);
}  // namespace reference

/// The rows' losses are added by one thread in their order, so the thread count changes no bit.
namespace cpu {
class Team;  // kernels/cpu/team.h
int64_t softmax_xent_workspace_bytes(const SoftmaxXentDims& d);
void softmax_xent_forward(const SoftmaxXentDims& d, const float* z, const int32_t* label,
                          float* loss, float* p, void* workspace, Team& team);
void softmax_xent_backward(const SoftmaxXentDims& d, const float* p, const int32_t* label,
                           const float* dloss, float* dz, Team& team);
}  // namespace cpu

}  // namespace trainyard::kernels
