// kernels/optimizer.h: parameter updates in place; the formulas are in kernels/math/optimizers.h.
//
/// Shapes    p, g, v, m `count` elements; learning_rate and step one number, in device memory,
///           because they change every step; step counts from 0.
/// Updates   p; sgd: v unless it is null (no momentum); adam: m and v; rmsprop: s, and a and b
///           unless they are null (not centered, no momentum); lion: m; muon: m, the momentum.
///           Reads g. `rate_factor` multiplies the learning rate. Updates nothing where the
///           learning rate is NaN: a step that loss scaling does not take (math/optimizers.h).
/// Adafactor p [batch, rows, columns] keeps row [batch, rows] and column [batch, columns]; with
///           rows 0 it is a vector of `columns` and keeps `column`, its whole variance; row is
///           null.
/// Muon      p [rows, columns]; the iteration runs in the workspace, in the gradient's precision.
/// Aliasing  none.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/view.h"
#include "kernels/math/optimizers.h"

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

namespace reference {  // T is float or double
template <typename T>
void sgd(const SgdParams& s, const T* g, const float* learning_rate, T* p, T* v);
template <typename T>
void adam(const AdamParams& s, const T* g, const float* learning_rate, const int64_t* step, T* p,
          T* m, T* v);
template <typename T>
void rmsprop(const RmspropParams& s, const T* g, const float* learning_rate, T* p, T* square, T* a,
             T* b);
template <typename T>
void lion(const LionParams& s, const T* g, const float* learning_rate, T* p, T* m);
template <typename T>
void adafactor(const AdafactorParams& s, const T* g, const float* learning_rate,
               const int64_t* step, T* p, T* row, T* column);
int64_t muon_workspace_elements(const MuonParams& s);
template <typename T>
void muon(const MuonParams& s, const T* g, const float* learning_rate, T* p, T* m, T* workspace);
template <typename T>
void moving_average(const MovingAverageParams& s, const T* p, const int64_t* step, T* average);
}  // namespace reference

/// The same bits for a team of any size; Muon's products (oneDNN) for teams of one size.
namespace cpu {
class Team;  // kernels/cpu/team.h
void sgd(const SgdParams& s, const float* g, const float* learning_rate, float* p, float* v,
         Team& team);
void adam(const AdamParams& s, const float* g, const float* learning_rate, const int64_t* step,
          float* p, float* m, float* v, Team& team);
void rmsprop(const RmspropParams& s, const float* g, const float* learning_rate, float* p,
             float* square, float* a, float* b, Team& team);
void lion(const LionParams& s, const float* g, const float* learning_rate, float* p, float* m,
          Team& team);
int64_t adafactor_workspace_bytes(const AdafactorParams& s);
void adafactor(const AdafactorParams& s, const float* g, const float* learning_rate,
               const int64_t* step, float* p, float* row, float* column, void* workspace,
               Team& team);
void moving_average(const MovingAverageParams& s, const float* p, const int64_t* step,
                    float* average, Team& team);

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

/// Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError(). What is done
/// element by element: kernels/cuda/updates.h.
namespace cuda {
int64_t adafactor_workspace_bytes(const AdafactorParams& s);
void adafactor(const AdafactorParams& s, In g, const float* learning_rate, const int64_t* step,
               float* p, float* row, float* column, void* workspace, CUstream_st* stream);

// What surrounds the products of Muon, which a library computes (src/runtime/cuda/updates.cc).
int64_t muon_norm_workspace_bytes();
/// The momentum is updated; x is the direction, divided by its norm.
void muon_begin(const MuonParams& s, In g, const float* learning_rate, float* m, float* x,
                void* workspace, CUstream_st* stream);
/// a I + b A + c A^2 in the place of A^2, for A and A^2 [side, side]: an iteration is then
/// X <- that X.
void muon_polynomial(int64_t side, const float* gram, float* square, CUstream_st* stream);
void muon_end(const MuonParams& s, const float* x, const float* learning_rate, float* p,
              CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
