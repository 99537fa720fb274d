// kernels/recurrent.h: recurrent layers over whole sequences (formulas: kernels/math/recurrent.h).
//
//   a[n,t] = w_ih x[n,t] + b_ih,  b[n,t] = w_hh h[n,t'] + b_hh     t' the step before, h = 0 there
//   lstm   the rows of the weights are the gates i, f, g, o of a + b
//   gru    r, z of a + b, and n of a and of b
//
// With `reverse` the steps run from the last to the first.
//
/// Shapes    G is 4 for lstm and 3 for gru. last: h behind the last step. gates are activated;
/// saved
///           is c of lstm, the candidate's recurrent part w_hn h + b_hn of gru. dy and dlast are
///           zero where they are left out.
/// Writes    all of each output that is not null, assigned; the gradient goes through all steps.
/// Aliasing  none.
/// Numerics  sums over steps and rows in an order that depends on the team's size alone.
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
      .holds((o.b_ih == nullptr) == (o.b_hh == nullptr), "b_ih",
             "comes without b_hh, or b_hh alone")
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
      .holds(o.dy != nullptr || o.dlast != nullptr, "dy", "is missing, and dlast too");
}

namespace reference {  // T is float or double
template <typename T>
void recurrent_forward(const RecurrentDims& d, const RecurrentForwardOperands<T>& p);
template <typename T>
void recurrent_backward(const RecurrentDims& d, const RecurrentBackwardOperands<T>& p);
}  // namespace reference

/// Prepared once. Biases may be given or not. Each thread takes rows of the batch through all
/// steps, so that nobody waits between two of them. `workspace` is 64-byte aligned. Not
/// thread-safe.
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

/// What of a step is no product: one launch. Step t comes behind step `before`, -1 at the first.
/// Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
namespace cuda {
struct RecurrentForwardStep {
  const float* a;            // [N, T, G H]: w_ih x; may be gates
  const float* b;            // [N, G H]: w_hh h, of this step; not read at the first
  const float *b_ih, *b_hh;  // both or neither
  Out y, last, gates;        // last is empty but at the last step, or always
  float* saved;
  float* h;      // [N, H]: h of the step before becomes this one's
  Out h_narrow;  // [N, H]: the same for the next product, or empty
};
void recurrent_step_forward(const RecurrentDims& d, int64_t t, int64_t before,
                            const RecurrentForwardStep& p, CUstream_st* stream);

struct RecurrentBackwardStep {
  In gates, y, dy, dlast;  // dy and dlast may be empty
  const float* saved;
  float *dh, *dc;  // [N, H]: from the step behind, to be added to by w_hh (gru) or assigned (lstm)
  Out da, db;      // [N, T, G H]: the gradients of a and b; db is empty where they are one (lstm)
  Out step;        // [N, G H]: db of this step
  Out h_before;    // [N, T, H]: what w_hh was multiplied with
};
/// `is_last`: the first one of backward.
void recurrent_step_backward(const RecurrentDims& d, int64_t t, int64_t before, bool is_last,
                             const RecurrentBackwardStep& p, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
