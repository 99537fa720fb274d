// kernels/attention.h: scaled dot-product attention of each head by itself, without a matrix of all
// scores in memory.
//
//   s[i,j] = scale * q[i] . k[j],  j <= i where causal (others do not take part)
//   lse[i] = log sum_j exp(s[i,j]),   p[i,j] = exp(s[i,j] - lse[i])
//   y[i] = sum_j m[i,j] p[i,j] v[j],  m[i,j] = 1 / (1 - ratio) where dropout keeps it, else 0
//
//   delta[i] = dy[i] . y[i],   ds[i,j] = p[i,j] * (m[i,j] dy[i] . v[j] - delta[i])
//   dv[j] = sum_i m[i,j] p[i,j] dy[i]
//   dq[i] = scale * sum_j ds[i,j] k[j],   dk[j] = scale * sum_i ds[i,j] q[i]
//
// Backward computes p again from q, k and lse, and draws m again: pair (i, j) of head h of sequence
// n is element ((n * H + h) * Tq + i) * Tk' + j of dropout (kernels/dropout.h), Tk' being Tk
// rounded up to 4, so that a block of four numbers serves four neighbours of one row.
//
// Sources: Vaswani et al., "Attention Is All You Need" (2017); Dao et al., "FlashAttention" (2022),
// algorithms 1 and 4.
//
/// Shapes    D is contiguous and heads follow each other; positions lie q_row, kv_row and H * D (y,
///           dy) apart, so that q, k and v may be interleaved in one tensor. Gradients lie as their
///           inputs do.
/// Writes    all of each output that is there, assigned.
/// Aliasing  none.
/// Numerics  a row's greatest score is subtracted before exp, so nothing overflows.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/dropout.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct AttentionDims {
  int64_t N, H, Tq, Tk, D;  // all >= 1
  int64_t q_row, kv_row;    // elements from one position to the next
  double scale;
  bool causal;
  double dropout = 0;  // ratio, [0, 1)
  uint64_t seed = 0;
  uint32_t stream = 0;
  int64_t first_head = 0;  // of dropout: heads of the rows before these, on other devices
  int64_t dropout_row() const { return (Tk + 3) / 4 * 4; }
};

template <typename T>
struct AttentionOperands {
  const int64_t* step = nullptr;  // [1]; needed by a dropout alone
  InOf<T> q, k, v;                // [N, Tq, H, D], [N, Tk, H, D] twice
  OutOf<T> y;                     // [N, Tq, H, D]
  NumberOf<T>* lse = nullptr;     // [N, H, Tq], optional
};

template <typename T>
struct AttentionGradOperands {
  const int64_t* step = nullptr;       // [1]; needed by a dropout alone
  InOf<T> q, k, v;                     // [N, Tq, H, D], [N, Tk, H, D] twice
  InOf<T> y;                           // [N, Tq, H, D]
  const NumberOf<T>* lse;              // [N, H, Tq]
  InOf<T> dy;                          // [N, Tq, H, D]
  OutOf<T> dq = {}, dk = {}, dv = {};  // as q, k and v, optional
};

inline Contract check(const char* kernel, const AttentionDims& d, const int64_t* step) {
  return Contract(kernel)
      .size("N", d.N)
      .size("H", d.H)
      .size("Tq", d.Tq)
      .size("Tk", d.Tk)
      .size("D", d.D)
      .holds(d.dropout == 0 || step != nullptr, "step", "is missing");
}
template <typename T>
void check(const AttentionDims& d, const AttentionOperands<T>& o) {
  check("attention_forward", d, o.step)
      .given("q", o.q)
      .given("k", o.k)
      .given("v", o.v)
      .given("y", o.y);
}
template <typename T>
void check(const AttentionDims& d, const AttentionGradOperands<T>& o) {
  check("attention_backward", d, o.step)
      .given("q", o.q)
      .given("k", o.k)
      .given("v", o.v)
      .given("y", o.y)
      .given("lse", o.lse)
      .given("dy", o.dy);
}

namespace reference {  // T is float or double
template <typename T>
void attention_forward(const AttentionDims& d, const AttentionOperands<T>& o, Run<T> run = {});
template <typename T>
void attention_backward(const AttentionDims& d, const AttentionGradOperands<T>& o, Run<T> run = {});
}  // namespace reference

/// Scores exist in tiles of 64 x 64. Heads are split over the team, in forward also parts of one
/// head's queries; no sum is split, so the thread count changes no bit.
namespace cpu {
int64_t attention_forward_workspace_bytes(const AttentionDims& d, const Team& team);
void attention_forward(const AttentionDims& d, const AttentionOperands<float>& o, Run run);
int64_t attention_backward_workspace_bytes(const AttentionDims& d, const Team& team);
void attention_backward(const AttentionDims& d, const AttentionGradOperands<float>& o, Run run);
}  // namespace cpu

/// Scores exist in tiles of 64 x 64; no sum is split over blocks. Launches: forward 1; backward 1
/// for delta, 1 for dq and 1 for dk and dv.
namespace cuda {
/// Whether D is within what the kernels take (4096).
bool takes_attention(const AttentionDims& d);
void attention_forward(const AttentionDims& d, const AttentionOperands<Views>& o, Run run);
int64_t attention_backward_workspace_bytes(const AttentionDims& d);
void attention_backward(const AttentionDims& d, const AttentionGradOperands<Views>& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
