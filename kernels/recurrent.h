// kernels/recurrent.h: recurrent layers over whole sequences (formulas: kernels/math/recurrent.h).
//
//   a[n,t] = w_ih x[n,t] + b_ih,  b[n,t] = w_hh h[n,t'] + b_hh     t' is the previous step; h = 0
//                                                                    before the first step
//   lstm   the weights' row blocks are the gates i, f, g, o, activated from a + b
//   gru    r, z are activated from a + b, and n from a and b separately
//
// With `reverse` the steps run from the last to the first.
//
/// Shapes    G is 4 for lstm and 3 for gru. last: h after the last step. gates are stored after
///           activation; saved is c for lstm and the candidate's recurrent part w_hn h + b_hn for
///           gru. dy and dlast count as zero if they are not given.
/// Writes    all of each output that is not null, assigned; the gradient is propagated through all
///           steps.
/// Aliasing  none.
/// Numerics  the order of sums over steps and rows depends only on the team's size.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

enum class RecurrentCell : uint8_t { kLstm, kGru };

struct RecurrentDims {
  RecurrentCell cell;
  int64_t N, T, F, H;  // all >= 1
  bool reverse = false;
  constexpr int64_t gates() const { return cell == RecurrentCell::kLstm ? 4 : 3; }
};

template <typename T>
struct RecurrentForwardOperands {
  const T* x;            // [N, T, F]
  const T* w_ih;         // [G H, F]
  const T* w_hh;         // [G H, H]
  const T *b_ih, *b_hh;  // [G H], or both nullptr
  T* y;                  // [N, T, H]
  T* last;               // [N, H] or nullptr
  T* gates;              // [N, T, G H]
  T* saved;              // [N, T, H]
};

template <typename T>
struct RecurrentBackwardOperands {
  const T* x;        // [N, T, F]
  const T* w_ih;     // [G H, F]
  const T* w_hh;     // [G H, H]
  const T* y;        // [N, T, H]
  const T* gates;    // [N, T, G H]
  const T* saved;    // [N, T, H]
  const T* dy;       // [N, T, H], or nullptr
  const T* dlast;    // [N, H], or nullptr, not both
  T* dx;             // [N, T, F] or nullptr
  T* dw_ih;          // [G H, F] or nullptr
  T* dw_hh;          // [G H, H] or nullptr
  T *db_ih, *db_hh;  // [G H] or nullptr
};

inline Contract check(const char* kernel, const RecurrentDims& d) {
  const Contract contract(kernel);
  contract.size("N", d.N).size("T", d.T).size("F", d.F).size("H", d.H);
  return contract;
}
template <typename T>
void check(const RecurrentDims& d, const RecurrentForwardOperands<T>& o) {
  check("recurrent_forward", d)
      .given("x", o.x)
      .given("w_ih", o.w_ih)
      .given("w_hh", o.w_hh)
      .holds((o.b_ih == nullptr) == (o.b_hh == nullptr), "b_ih", "and b_hh must be given together")
      .given("y", o.y)
      .given("gates", o.gates)
      .given("saved", o.saved);
}
template <typename T>
void check(const RecurrentDims& d, const RecurrentBackwardOperands<T>& o) {
  check("recurrent_backward", d)
      .given("x", o.x)
      .given("w_ih", o.w_ih)
      .given("w_hh", o.w_hh)
      .given("y", o.y)
      .given("gates", o.gates)
      .given("saved", o.saved)
      .holds(o.dy != nullptr || o.dlast != nullptr, "dy", "and dlast are both missing");
}

namespace reference {  // T is float or double
template <typename T>
void recurrent_forward(const RecurrentDims& d, const RecurrentForwardOperands<T>& p);
template <typename T>
void recurrent_backward(const RecurrentDims& d, const RecurrentBackwardOperands<T>& p);
}  // namespace reference

/// Objects are prepared once and can be called with and without biases. Each thread computes all
/// steps of its rows of the batch, so that threads need not synchronize between steps. `workspace`
/// is 64-byte aligned. Not thread-safe.
namespace cpu {
class RecurrentForward {
 public:
  RecurrentForward(const RecurrentDims& d, Team& team);
  ~RecurrentForward();
  int64_t workspace_bytes() const;
  void run(const RecurrentForwardOperands<float>& p, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class RecurrentBackward {
 public:
  RecurrentBackward(const RecurrentDims& d, bool wants_dx, Team& team);
  ~RecurrentBackward();
  int64_t workspace_bytes() const;
  void run(const RecurrentBackwardOperands<float>& p, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
}  // namespace cpu

/// The elementwise part of one step, without the matrix products: one launch. `before` is the step
/// computed before step t, -1 for the first. Asynchronous on `stream`; cudaPeekAtLastError()
/// reports a failed launch.
namespace cuda {
struct RecurrentForwardStep {
  const float* a;            // [N, T, G H]: w_ih x; may be gates
  const float* b;            // [N, G H]: w_hh h of this step; not read at the first step
  const float *b_ih, *b_hh;  // both or neither
  Out y, last, gates;        // last is empty before the last step, or always
  float* saved;
  float* h;      // [N, H]: h of the previous step, replaced by that of this step
  Out h_narrow;  // [N, H]: the new h in 16 bits for the next product, or empty
};
void recurrent_step_forward(const RecurrentDims& d, int64_t t, int64_t before,
                            const RecurrentForwardStep& p, CUstream_st* stream);

struct RecurrentBackwardStep {
  In gates, y, dy, dlast;  // dy and dlast may be empty
  const float* saved;
  float *dh, *dc;  // [N, H]: passed from step to step; the caller's product with w_hh is added to
                   // dh (gru) or assigned (lstm)
  Out da, db;      // [N, T, G H]: the gradients of a and b; db is empty if they are equal (lstm)
  Out step;        // [N, G H]: db of this step
  Out h_before;    // [N, T, H]: the h that w_hh was multiplied by
};
/// `is_last` is true if t is the sequence's last step, with which backward begins.
void recurrent_step_backward(const RecurrentDims& d, int64_t t, int64_t before, bool is_last,
                             const RecurrentBackwardStep& p, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
