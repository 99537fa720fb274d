// kernels/recurrent.h: recurrent layers over whole sequences (formulas: kernels/math/recurrent.h).
//
//   a[n,t] = w_ih x[n,t] + b_ih,  b[n,t] = w_hh h[n,t'] + b_hh     t' the step before, h = 0 there
//   lstm   the rows of the weights are the gates i, f, g, o of a + b
//   gru    r, z of a + b, and n of a and of b
//
// With `reverse` the steps run from the last to the first.
//
/// Shapes    x, dx [N, T, F]; w_ih [G H, F]; w_hh [G H, H]; b_ih, b_hh [G H] or null; G is 4 for
///           lstm and 3 for gru. y, dy [N, T, H]; last, dlast [N, H]: h behind the last step.
///           gates [N, T, G H], activated; saved [N, T, H]: c of lstm, the candidate's recurrent
///           part w_hn h + b_hn of gru. Gradients are shaped like what they belong to.
/// Writes    forward: y, gates and saved in full, last unless null. backward: all of each output
///           that is not null, assigned; the gradient goes through all steps. dy and dlast may be
///           null (zero), not both.
/// Aliasing  none.
/// Numerics  sums over steps and rows in an order that depends on the team's size alone.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/view.h"

namespace trainyard::kernels {

enum class RecurrentCell : uint8_t { kLstm, kGru };

struct RecurrentDims {
  RecurrentCell cell;
  int64_t N, T, F, H;  // all >= 1
  bool reverse = false;
  constexpr int64_t gates() const { return cell == RecurrentCell::kLstm ? 4 : 3; }
};

template <typename T>
struct RecurrentForwardArgs {
  const T *x, *w_ih, *w_hh, *b_ih, *b_hh;
  T *y, *last, *gates, *saved;
};

template <typename T>
struct RecurrentBackwardArgs {
  const T *x, *w_ih, *w_hh, *y, *gates, *saved, *dy, *dlast;
  T *dx, *dw_ih, *dw_hh, *db_ih, *db_hh;
};

namespace reference {  // T is float or double
template <typename T>
void recurrent_forward(const RecurrentDims& d, const RecurrentForwardArgs<T>& p);
template <typename T>
void recurrent_backward(const RecurrentDims& d, const RecurrentBackwardArgs<T>& p);
}  // namespace reference

/// Prepared once. Biases may be given or not. Each thread takes rows of the batch through all
/// steps, so that nobody waits between two of them. `workspace` is 64-byte aligned. Not
/// thread-safe.
namespace cpu {
class Team;  // kernels/cpu/team.h
class RecurrentForward {
 public:
  RecurrentForward(const RecurrentDims& d, Team& team);
  ~RecurrentForward();
  int64_t workspace_bytes() const;
  void run(const RecurrentForwardArgs<float>& p, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class RecurrentBackward {
 public:
  RecurrentBackward(const RecurrentDims& d, bool wants_dx, Team& team);
  ~RecurrentBackward();
  int64_t workspace_bytes() const;
  void run(const RecurrentBackwardArgs<float>& p, void* workspace);

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
