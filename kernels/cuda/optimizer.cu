// Updates of single elements. The formulas are those of the CPU, from kernels/math/optimizers.h.
//
// Access   four neighbours for each thread, whole lines for each warp. Adam reads p, m, v and g and
//          writes p, m and v: 28 B a parameter; sgd with momentum 20 B, without 12 B.
// Constants depend on the learning rate and the step, which lie in device memory. One thread of a
//          block computes them, in double as on the CPU, and the blocks are few and stay.
// Time     bytes / 4.8 TB/s on an H200: Adam on 100 M parameters in 0.58 ms.
#include "kernels/optimizer.h"

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

constexpr int64_t kUpdateBlocks = 1056;  // eight for each multiprocessor of an H200

/// What an update keeps by element; nullptr: it does not.
struct States {
  float* of[3] = {};
};

struct Sgd {
  using Constants = math::SgdConstants<float>;
  SgdParams s;
  const float* learning_rate;
  TRAINYARD_DEVICE Constants constants() const {
    return {static_cast<float>(*learning_rate * s.rate_factor), static_cast<float>(s.momentum),
            static_cast<float>(s.weight_decay), s.nesterov};
  }
  TRAINYARD_DEVICE static void step(const Constants& c, float g, float& p, float* v, float*,
                                    float*) {
    math::sgd(c, g, p, v);
  }
};

struct Adam {
  using Constants = math::AdamConstants<float>;
  AdamParams s;
  const float* learning_rate;
  const int64_t* at;
  TRAINYARD_DEVICE Constants constants() const {
    return math::adam_constants<float>(*learning_rate * s.rate_factor, s.beta1, s.beta2, s.epsilon,
                                       s.weight_decay, s.decoupled, *at);
  }
  TRAINYARD_DEVICE static void step(const Constants& c, float g, float& p, float* m, float* v,
                                    float*) {
    math::adam(c, g, p, *m, *v);
  }
};

struct Rmsprop {
  using Constants = math::RmspropConstants<float>;
  RmspropParams s;
  const float* learning_rate;
  TRAINYARD_DEVICE Constants constants() const {
    return {static_cast<float>(*learning_rate * s.rate_factor),
            static_cast<float>(s.alpha),
            static_cast<float>(1 - s.alpha),
            static_cast<float>(s.epsilon),
            static_cast<float>(s.momentum),
            static_cast<float>(s.weight_decay)};
  }
  TRAINYARD_DEVICE static void step(const Constants& c, float g, float& p, float* square, float* a,
                                    float* b) {
    math::rmsprop(c, g, p, *square, a, b);
  }
};

struct Lion {
  using Constants = math::LionConstants<float>;
  LionParams s;
  const float* learning_rate;
  TRAINYARD_DEVICE Constants constants() const {
    const double rate = *learning_rate * s.rate_factor;
    return {static_cast<float>(rate),        static_cast<float>(s.beta1),
            static_cast<float>(1 - s.beta1), static_cast<float>(s.beta2),
            static_cast<float>(1 - s.beta2), static_cast<float>(1 - rate * s.weight_decay)};
  }
  TRAINYARD_DEVICE static void step(const Constants& c, float g, float& p, float* m, float*,
                                    float*) {
    math::lion(c, g, p, *m);
  }
};

template <typename U>
TRAINYARD_KERNEL void update(int64_t count, bool fours, U u, In g, float* p, States states) {
  if (math::is_skipped(*u.learning_rate)) return;
  TRAINYARD_SHARED typename U::Constants c;
  if (threadIdx.x == 0) c = u.constants();
  __syncthreads();
  float* const* s = states.of;
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
      U::step(c, g[i], p[i], s[0] == nullptr ? nullptr : s[0] + i,
              s[1] == nullptr ? nullptr : s[1] + i, s[2] == nullptr ? nullptr : s[2] + i);
    }
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    const Four gradient = load4(g, i);
    Four parameter = load4({p}, i), kept[3] = {};
    for (int k = 0; k < 3; ++k) {
      if (s[k] != nullptr) kept[k] = load4({s[k]}, i);
    }
    for (int e = 0; e < 4; ++e) {
      U::step(c, gradient.v[e], parameter.v[e], s[0] == nullptr ? nullptr : &kept[0].v[e],
              s[1] == nullptr ? nullptr : &kept[1].v[e], s[2] == nullptr ? nullptr : &kept[2].v[e]);
    }
    store4({p}, i, parameter);
    for (int k = 0; k < 3; ++k) {
      if (s[k] != nullptr) store4({s[k]}, i, kept[k]);
    }
  }
}

Grid update_grid(int64_t steps) { return {std::min(grid_for(steps).blocks, kUpdateBlocks)}; }

bool takes_fours(int64_t count, In g, std::initializer_list<const float*> others) {
  bool yes = count % 4 == 0 && takes_four(g);
  for (const float* other : others) yes &= takes_four({other});
  return yes;
}

template <typename U>
void run_update(const U& u, In g, float* p, States s, CUstream_st* stream) {
  const int64_t count = u.s.count;
  const bool fours = takes_fours(count, g, {p, s.of[0], s.of[1], s.of[2]});
  launch(update_grid(fours ? count / 4 : count), stream, update<U>, count, fours, u, g, p, s);
}

TRAINYARD_KERNEL void average_steps(int64_t count, bool fours, float share, const float* p,
                                    const int64_t* step, float* average) {
  const bool first = *step == 0;
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
      average[i] = first ? p[i] : math::moving_average(average[i], p[i], share);
    }
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    Four v = load4({p}, i);
    const Four old = load4({average}, i);
    for (int e = 0; e < 4; ++e) {
      if (!first) v.v[e] = math::moving_average(old.v[e], v.v[e], share);
    }
    store4({average}, i, v);
  }
}

// Muon. x is summed while it is made; the sum is joined by whoever divides by it.

constexpr int64_t kNormBlocks = 264;

TRAINYARD_KERNEL void momentum_and_direction(int64_t count, float new_share, float momentum,
                                             bool nesterov, In g, const float* learning_rate,
                                             float* m, float* x, double* squares) {
  const bool skipped = math::is_skipped(*learning_rate);
  double sum = 0;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const float gradient = g[i];
    const float updated = m[i] + new_share * (gradient - m[i]);
    if (!skipped) m[i] = updated;
    const float direction = nesterov ? gradient + momentum * (updated - gradient) : updated;
    x[i] = direction;
    sum += static_cast<double>(direction) * static_cast<double>(direction);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

TRAINYARD_KERNEL void divide_by_norm(int64_t count, int64_t parts, const double* squares,
                                     float* x) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < parts; i += blockDim.x) sum += squares[i];
  const double norm = std::sqrt(block_sum(sum));
  const auto scale =
      static_cast<float>(1 / (norm < math::kMuonEpsilon ? math::kMuonEpsilon : norm));
  for (int64_t i = thread_index(); i < count; i += thread_count()) x[i] *= scale;
}

TRAINYARD_KERNEL void polynomial(int64_t side, const float* gram, float* square) {
  const int64_t count = side * side;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    float v =
        static_cast<float>(math::kMuonB) * gram[i] + static_cast<float>(math::kMuonC) * square[i];
    if (i % (side + 1) == 0) v += static_cast<float>(math::kMuonA);
    square[i] = v;
  }
}

TRAINYARD_KERNEL void step_along(MuonParams s, const float* x, const float* learning_rate,
                                 float* p) {
  if (math::is_skipped(*learning_rate)) return;
  TRAINYARD_SHARED float constants[2];
  if (threadIdx.x == 0) {
    const double rate = *learning_rate * s.rate_factor;
    constants[0] = static_cast<float>(1 - rate * s.weight_decay);
    constants[1] = static_cast<float>(math::muon_rate(rate, s.match_adamw, s.rows, s.columns));
  }
  __syncthreads();
  const float kept = constants[0], step = constants[1];
  const int64_t count = s.rows * s.columns;
  for (int64_t i = thread_index(); i < count; i += thread_count()) p[i] = p[i] * kept - step * x[i];
}

}  // namespace

void sgd(const SgdParams& s, In g, const float* learning_rate, float* p, float* v,
         CUstream_st* stream) {
  run_update(Sgd{s, learning_rate}, g, p, {{v}}, stream);
}

void adam(const AdamParams& s, In g, const float* learning_rate, const int64_t* step, float* p,
          float* m, float* v, CUstream_st* stream) {
  run_update(Adam{s, learning_rate, step}, g, p, {{m, v}}, stream);
}

void rmsprop(const RmspropParams& s, In g, const float* learning_rate, float* p, float* square,
             float* a, float* b, CUstream_st* stream) {
  run_update(Rmsprop{s, learning_rate}, g, p, {{square, a, b}}, stream);
}

void lion(const LionParams& s, In g, const float* learning_rate, float* p, float* m,
          CUstream_st* stream) {
  run_update(Lion{s, learning_rate}, g, p, {{m}}, stream);
}

void moving_average(const MovingAverageParams& s, const float* p, const int64_t* step,
                    float* average, CUstream_st* stream) {
  const bool fours = takes_fours(s.count, {p}, {average});
  launch(grid_for(fours ? s.count / 4 : s.count), stream, average_steps, s.count, fours,
         static_cast<float>(1 - s.decay), p, step, average);
}

int64_t muon_norm_workspace_bytes() { return kNormBlocks * static_cast<int64_t>(sizeof(double)); }

void muon_begin(const MuonParams& s, In g, const float* learning_rate, float* m, float* x,
                void* workspace, CUstream_st* stream) {
  const int64_t count = s.rows * s.columns;
  const int64_t blocks = std::min(grid_for(count).blocks, kNormBlocks);
  auto* squares = static_cast<double*>(workspace);
  launch({blocks}, stream, momentum_and_direction, count, static_cast<float>(1 - s.momentum),
         static_cast<float>(s.momentum), s.nesterov, g, learning_rate, m, x, squares);
  launch({blocks}, stream, divide_by_norm, count, blocks, squares, x);
}

void muon_polynomial(int64_t side, const float* gram, float* square, CUstream_st* stream) {
  launch(grid_for(side * side), stream, polynomial, side, gram, square);
}

void muon_end(const MuonParams& s, const float* x, const float* learning_rate, float* p,
              CUstream_st* stream) {
  launch(update_grid(s.rows * s.columns), stream, step_along, s, x, learning_rate, p);
}

}  // namespace trainyard::kernels::cuda
