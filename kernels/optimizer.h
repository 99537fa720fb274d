// kernels/optimizer.h: parameter updates in place; the formulas are in kernels/math/optimizers.h.
//
/// Shapes    learning_rate and step are single numbers in device memory, because they change every
///           step; step counts from 0.
/// Updates   operands that are not const. `rate_factor` multiplies the learning rate. Nothing is
///           updated if the learning rate is NaN, which marks a step that loss scaling skips
///           (math/optimizers.h).
/// Adafactor  with rows 0, the parameter is a vector of `columns` elements, and `column` is its
///            whole variance.
/// Muon      p, g, m (the momentum) [rows, columns]; the iteration runs in the workspace, in the
///           gradient's precision.
/// copy      [count] or nullptr: it is set to the updated p, for products that read p in 16 bits.
/// Aliasing  none.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/contract.h"
#include "kernels/math/optimizers.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct SgdParams {
  int64_t count;
  double momentum, weight_decay;
  bool nesterov;
  double rate_factor = 1;
};

struct AdamParams {
  int64_t count;
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;  // AdamW
  double rate_factor = 1;
};

struct RmspropParams {
  int64_t count;
  double alpha, epsilon, momentum, weight_decay, rate_factor;
};

struct LionParams {
  int64_t count;
  double beta1, beta2, weight_decay, rate_factor;
};

struct AdafactorParams {
  int64_t batch, rows, columns;  // rows 0: a vector
  double beta2_decay, epsilon, scale_min, clip_threshold, weight_decay, rate_factor;
  constexpr int64_t count() const { return rows == 0 ? columns : batch * rows * columns; }
};

struct MuonParams {
  int64_t rows, columns;
  double momentum, weight_decay, rate_factor;
  bool nesterov, match_adamw;
  int64_t iterations;
};

/// average = p at step 0, else average + (1 - decay) (p - average).
struct MovingAverageParams {
  int64_t count;
  double decay;
};

template <typename T>
struct SgdOperands {
  InOf<T> g;  // [count]
  const float* learning_rate;
  NumberOf<T>* p;  // [count]
  NumberOf<T>* v;  // [count] or nullptr: no momentum
  OutOf<T> copy = {};
};

template <typename T>
struct AdamOperands {
  InOf<T> g;  // [count]
  const float* learning_rate;
  const int64_t* step;
  NumberOf<T>*p, *m, *v;  // [count]
  OutOf<T> copy = {};
};

template <typename T>
struct RmspropOperands {
  InOf<T> g;  // [count]
  const float* learning_rate;
  NumberOf<T>*p, *square;  // [count]
  NumberOf<T>* a;          // [count] or nullptr: not centered
  NumberOf<T>* b;          // [count] or nullptr: no momentum
  OutOf<T> copy = {};
};

template <typename T>
struct LionOperands {
  InOf<T> g;  // [count]
  const float* learning_rate;
  NumberOf<T>*p, *m;  // [count]
  OutOf<T> copy = {};
};

template <typename T>
struct AdafactorOperands {
  InOf<T> g;  // [batch, rows, columns]
  const float* learning_rate;
  const int64_t* step;
  NumberOf<T>* p;       // [batch, rows, columns]
  NumberOf<T>* row;     // [batch, rows]; nullptr for a vector
  NumberOf<T>* column;  // [batch, columns]
};

template <typename T>
struct MovingAverageOperands {
  const NumberOf<T>* p;  // [count]
  const int64_t* step;
  NumberOf<T>* average;  // [count]
};

/// Returns the operands that every update of a parameter needs.
template <typename O>
Contract check_update(const char* kernel, int64_t count, const O& o) {
  const Contract contract(kernel);
  contract.size("count", count)
      .given("g", o.g)
      .given("learning_rate", o.learning_rate)
      .given("p", o.p);
  return contract;
}
template <typename T>
void check(const SgdParams& s, const SgdOperands<T>& o) {
  check_update("sgd", s.count, o);
}
template <typename T>
void check(const AdamParams& s, const AdamOperands<T>& o) {
  check_update("adam", s.count, o).given("step", o.step).given("m", o.m).given("v", o.v);
}
template <typename T>
void check(const RmspropParams& s, const RmspropOperands<T>& o) {
  check_update("rmsprop", s.count, o).given("square", o.square);
}
template <typename T>
void check(const LionParams& s, const LionOperands<T>& o) {
  check_update("lion", s.count, o).given("m", o.m);
}
template <typename T>
void check(const AdafactorParams& s, const AdafactorOperands<T>& o) {
  check_update("adafactor", s.count(), o)
      .holds((o.row == nullptr) == (s.rows == 0), "row",
             "must be given for a matrix, and only for one")
      .given("step", o.step)
      .given("column", o.column);
}
template <typename T>
void check(const MovingAverageParams& s, const MovingAverageOperands<T>& o) {
  Contract("moving_average")
      .size("count", s.count)
      .given("p", o.p)
      .given("step", o.step)
      .given("average", o.average);
}

namespace reference {  // T is float or double
template <typename T>
void sgd(const SgdParams& s, const SgdOperands<T>& o, Run<T> run = {});
template <typename T>
void adam(const AdamParams& s, const AdamOperands<T>& o, Run<T> run = {});
template <typename T>
void rmsprop(const RmspropParams& s, const RmspropOperands<T>& o, Run<T> run = {});
template <typename T>
void lion(const LionParams& s, const LionOperands<T>& o, Run<T> run = {});
template <typename T>
void adafactor(const AdafactorParams& s, const AdafactorOperands<T>& o, Run<T> run = {});
template <typename T>
void moving_average(const MovingAverageParams& s, const MovingAverageOperands<T>& o,
                    Run<T> run = {});
int64_t muon_workspace_elements(const MuonParams& s);
template <typename T>
void muon(const MuonParams& s, const T* g, const float* learning_rate, T* p, T* m, T* workspace);
}  // namespace reference

/// Results are bit-identical for any team size, except that Muon's (oneDNN) are so only for teams
/// of the same size.
namespace cpu {
void sgd(const SgdParams& s, const SgdOperands<float>& o, Run run);
void adam(const AdamParams& s, const AdamOperands<float>& o, Run run);
void rmsprop(const RmspropParams& s, const RmspropOperands<float>& o, Run run);
void lion(const LionParams& s, const LionOperands<float>& o, Run run);
int64_t adafactor_workspace_bytes(const AdafactorParams& s);
void adafactor(const AdafactorParams& s, const AdafactorOperands<float>& o, Run run);
void moving_average(const MovingAverageParams& s, const MovingAverageOperands<float>& o, Run run);

class Muon {
 public:
  Muon(const MuonParams& s, Team& team);
  ~Muon();
  int64_t workspace_bytes() const;
  void run(const float* g, const float* learning_rate, float* p, float* m, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
}  // namespace cpu

/// The elementwise updates are in kernels/cuda/updates.h.
namespace cuda {
int64_t adafactor_workspace_bytes(const AdafactorParams& s);
void adafactor(const AdafactorParams& s, const AdafactorOperands<Views>& o, Run run);

// These functions compute the steps of Muon before, between and after its matrix products, which a
// library computes (src/runtime/cuda/updates.cc).
int64_t muon_norm_workspace_bytes();
/// Updates the momentum; x becomes the update direction, divided by its norm.
void muon_begin(const MuonParams& s, In g, const float* learning_rate, float* m, float* x,
                void* workspace, CUstream_st* stream);
/// Replaces square = A^2 by a I + b A + c A^2, where A = gram [side, side]; an iteration then
/// replaces X by the product of that matrix and X.
void muon_polynomial(int64_t side, const float* gram, float* square, CUstream_st* stream);
void muon_end(const MuonParams& s, const float* x, const float* learning_rate, float* p,
              CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
