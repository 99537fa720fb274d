// kernels/attention.h: scaled dot-product attention, separately for each head, without storing the
// matrix of all scores.
//
//   s[i,j] = scale * q[i] . k[j],  for the keys j that query i sees (other pairs are left out)
//   lse[i] = log sum_j exp(s[i,j]),   p[i,j] = exp(s[i,j] - lse[i])
//   y[i] = sum_j m[i,j] p[i,j] v[j],  m[i,j] = 1 / (1 - ratio) if dropout keeps it, else 0
//
//   delta[i] = dy[i] . y[i],   ds[i,j] = p[i,j] * (m[i,j] dy[i] . v[j] - delta[i])
//   dv[j] = sum_i m[i,j] p[i,j] dy[i]
//   dq[i] = scale * sum_j ds[i,j] k[j],   dk[j] = scale * sum_i ds[i,j] q[i]
//
// Head h of the queries reads head h / (H / KV) of the KV heads of keys and values; dk and dv are
// sums over all heads that read them. The keys that a query sees are adjacent (math/key_range.h):
// all of them, those up to itself if causal, of these only those of its document, those up to its
// place in a cache or the newest `window`, or the first key_counts[n]. A query that sees none has
// y = 0, lse = 0 and no share in any gradient.
//
// Backward computes p again from q, k and lse, and draws m again: pair (i, j) of head h of sequence
// n is element ((n * H + h) * Tq + i) * Tk' + j of dropout (kernels/dropout.h). Tk' is Tk rounded
// up to a multiple of 4, so that one block of four random numbers serves four neighbours of one
// row.
//
// Sources: Vaswani et al., "Attention Is All You Need" (2017); Dao et al., "FlashAttention" (2022),
// algorithms 1 and 4.
//
/// Shapes    q, y [N, Tq, H, D]; k and v [N, Tk, KV, D]; lse [N, H, Tq]. D is contiguous and heads
///           are adjacent. The stride between positions is q_row, kv_row, or H * D (y, dy), so that
///           q, k and v may be interleaved in one tensor. Gradients have the strides of their
///           inputs.
/// Writes    all of each output that is given, assigned.
/// Aliasing  none.
/// Numerics  a row's greatest score is subtracted before exp, so nothing overflows.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/dropout.h"
#include "kernels/math/key_range.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct AttentionDims {
  int64_t N, H, Tq, Tk, D;  // all >= 1
  int64_t q_row, kv_row;    // elements between consecutive positions
  double scale;
  bool causal;
  double dropout = 0;  // ratio, [0, 1)
  uint64_t seed = 0;
  uint32_t stream = 0;
  int64_t first_head = 0;  // heads on other devices before these; offsets dropout's numbers
  bool tf32 = false;       // products may round their operands to TF32, if the device supports it
  int64_t kv_heads = 0;    // KV, which divides H; 0: H
  int64_t window = 0;      // a causal query sees so many of the newest keys; 0: all of them
  bool cached = false;     // positions are places among the keys, else places in documents
  int64_t dropout_row() const { return (Tk + 3) / 4 * 4; }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : H; }
  /// Returns the number of heads of queries that read the same keys and values.
  int64_t group() const { return H / key_heads(); }
  math::KeyRules key_rules() const { return {Tk, window, causal, cached}; }
};

/// Arrays that limit which keys the queries see. They are in memory of the backend, and each is
/// optional.
struct SeenKeys {
  const int32_t* positions = nullptr;   // [N, Tq]; only if causal
  const int32_t* key_counts = nullptr;  // [N]; only if not causal
};

template <typename T>
struct AttentionOperands {
  const int64_t* step = nullptr;  // [1]; only needed with dropout
  InOf<T> q, k, v;
  OutOf<T> y;
  NumberOf<T>* lse = nullptr;  // optional
  SeenKeys seen = {};
};

template <typename T>
struct AttentionGradOperands {
  const int64_t* step = nullptr;  // [1]; only needed with dropout
  InOf<T> q, k, v;
  InOf<T> y;
  const NumberOf<T>* lse;
  InOf<T> dy;                          // shaped as y
  OutOf<T> dq = {}, dk = {}, dv = {};  // shaped as q, k and v; optional
  SeenKeys seen = {};
};

inline Contract check(const char* kernel, const AttentionDims& d, const int64_t* step,
                      const SeenKeys& seen) {
  return Contract(kernel)
      .size("N", d.N)
      .size("H", d.H)
      .size("Tq", d.Tq)
      .size("Tk", d.Tk)
      .size("D", d.D)
      .holds(d.H % d.key_heads() == 0, "kv_heads", "does not divide H")
      .holds(seen.positions == nullptr || d.causal, "positions", "are given, but not causal")
      .holds(seen.key_counts == nullptr || !d.causal, "key_counts", "are given, but causal")
      .holds(d.dropout == 0 || step != nullptr, "step", "is missing");
}
template <typename T>
void check(const AttentionDims& d, const AttentionOperands<T>& o) {
  check("attention_forward", d, o.step, o.seen)
      .given("q", o.q)
      .given("k", o.k)
      .given("v", o.v)
      .given("y", o.y);
}
template <typename T>
void check(const AttentionDims& d, const AttentionGradOperands<T>& o) {
  check("attention_backward", d, o.step, o.seen)
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

/// Only tiles of 64 x 64 scores exist at a time. Heads are split over the team, in forward also
/// blocks of one head's queries. No sum is split, so results are bit-identical for any team size.
namespace cpu {
int64_t attention_forward_workspace_bytes(const AttentionDims& d, const Team& team);
void attention_forward(const AttentionDims& d, const AttentionOperands<float>& o, Run run);
int64_t attention_backward_workspace_bytes(const AttentionDims& d, const Team& team);
void attention_backward(const AttentionDims& d, const AttentionGradOperands<float>& o, Run run);
}  // namespace cpu

/// Only tiles of 64 x 64 scores exist at a time; no sum is split over blocks. Launches: forward 1;
/// backward 1 for delta, 1 for dq, and 1 for dk and dv.
namespace cuda {
/// Returns whether the kernels support D (at most 4096).
bool supports_attention(const AttentionDims& d);
void attention_forward(const AttentionDims& d, const AttentionOperands<Views>& o, Run run);
int64_t attention_backward_workspace_bytes(const AttentionDims& d);
void attention_backward(const AttentionDims& d, const AttentionGradOperands<Views>& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
