// kernels/cuda/updates.h: elementwise operations on parameters, gradients and copies of weights,
// for one tensor or for many in one launch. Each kind of update is a struct of its operands and
// hyper-parameters. The contracts are in kernels/optimizer.h and kernels/gradient.h, the formulas
// in kernels/math/optimizers.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"
#include "kernels/gradient.h"
#include "kernels/math/host_device.h"
#include "kernels/math/optimizers.h"
#include "kernels/optimizer.h"

namespace trainyard::kernels::cuda {

/// The optimizer state of an update, one array each; nullptr: not used.
struct UpdateStates {
  float* of[3] = {};
};

// A kind U has   s.count          number of elements
//                source()         the array that is read
//                target()         the array that is written, and read first if kReadsTarget
//                copy             optional: a second array that gets the same values; null: none
//                states()         F32 arrays that are updated
//                is_skipped()     true if the step changes nothing (loss_scale_update)
//                constants()      values common to all elements, read from device memory
//                step(c, source, target, state, state, state)

/// An optimizer's step for a parameter.
template <typename Params>
struct ParameterUpdate {
  Params s;
  In g;
  const float* learning_rate;
  float* p;
  Out copy;

  static constexpr bool kReadsTarget = true;
  TRAINYARD_HD In source() const { return g; }
  TRAINYARD_HD Out target() const { return {p}; }
  TRAINYARD_HD bool is_skipped() const { return math::is_skipped(*learning_rate); }
};

struct SgdUpdate : ParameterUpdate<SgdParams> {
  float* v;

  using Constants = math::SgdConstants<float>;
  TRAINYARD_HD UpdateStates states() const { return {{v}}; }
  TRAINYARD_HD Constants constants() const {
    return {static_cast<float>(*learning_rate * s.rate_factor), static_cast<float>(s.momentum),
            static_cast<float>(s.weight_decay), s.nesterov};
  }
  TRAINYARD_HD static void step(const Constants& c, float g, float& p, float* v, float*, float*) {
    math::sgd(c, g, p, v);
  }
};

struct AdamUpdate : ParameterUpdate<AdamParams> {
  const int64_t* at;
  float *m, *v;

  using Constants = math::AdamConstants<float>;
  TRAINYARD_HD UpdateStates states() const { return {{m, v}}; }
  TRAINYARD_HD Constants constants() const {
    return math::adam_constants<float>(*learning_rate * s.rate_factor, s.beta1, s.beta2, s.epsilon,
                                       s.weight_decay, s.decoupled, *at);
  }
  TRAINYARD_HD static void step(const Constants& c, float g, float& p, float* m, float* v, float*) {
    math::adam(c, g, p, *m, *v);
  }
};

struct RmspropUpdate : ParameterUpdate<RmspropParams> {
  float *square, *a, *b;

  using Constants = math::RmspropConstants<float>;
  TRAINYARD_HD UpdateStates states() const { return {{square, a, b}}; }
  TRAINYARD_HD Constants constants() const {
    return {static_cast<float>(*learning_rate * s.rate_factor),
            static_cast<float>(s.alpha),
            static_cast<float>(1 - s.alpha),
            static_cast<float>(s.epsilon),
            static_cast<float>(s.momentum),
            static_cast<float>(s.weight_decay)};
  }
  TRAINYARD_HD static void step(const Constants& c, float g, float& p, float* square, float* a,
                                float* b) {
    math::rmsprop(c, g, p, *square, a, b);
  }
};

struct LionUpdate : ParameterUpdate<LionParams> {
  float* m;

  using Constants = math::LionConstants<float>;
  TRAINYARD_HD UpdateStates states() const { return {{m}}; }
  TRAINYARD_HD Constants constants() const {
    const double rate = *learning_rate * s.rate_factor;
    return {static_cast<float>(rate),        static_cast<float>(s.beta1),
            static_cast<float>(1 - s.beta1), static_cast<float>(s.beta2),
            static_cast<float>(1 - s.beta2), static_cast<float>(1 - rate * s.weight_decay)};
  }
  TRAINYARD_HD static void step(const Constants& c, float g, float& p, float* m, float*, float*) {
    math::lion(c, g, p, *m);
  }
};

struct MovingAverageUpdate {
  MovingAverageParams s;
  const float* p;
  const int64_t* at;
  float* average;

  struct Constants {
    bool first;
    float share;
  };
  static constexpr bool kReadsTarget = true;
  TRAINYARD_HD In source() const { return {p}; }
  TRAINYARD_HD Out target() const { return {average}; }
  TRAINYARD_HD UpdateStates states() const { return {}; }
  TRAINYARD_HD bool is_skipped() const { return false; }
  TRAINYARD_HD Constants constants() const { return {*at == 0, static_cast<float>(1 - s.decay)}; }
  TRAINYARD_HD static void step(const Constants& c, float p, float& average, float*, float*,
                                float*) {
    average = c.first ? p : math::moving_average(average, p, c.share);
  }
};

struct GradientAccumulation {
  AccumulateGradientParams s;
  In g;
  const int64_t* micro_step;
  float* sum;

  struct Constants {
    bool first;
    float share;
  };
  static constexpr bool kReadsTarget = true;
  TRAINYARD_HD In source() const { return g; }
  TRAINYARD_HD Out target() const { return {sum}; }
  TRAINYARD_HD UpdateStates states() const { return {}; }
  TRAINYARD_HD bool is_skipped() const { return false; }
  TRAINYARD_HD Constants constants() const {
    return {*micro_step == 0, static_cast<float>(s.share)};
  }
  TRAINYARD_HD static void step(const Constants& c, float g, float& sum, float*, float*, float*) {
    sum = c.share * g + (c.first ? 0.0f : sum);
  }
};

struct GradientClipping {
  ClipGradientParams s;
  In g;
  const float* scale;  // nullptr: 1
  Out y;

  struct Constants {
    float factor, bound;
  };
  static constexpr bool kReadsTarget = false;
  TRAINYARD_HD In source() const { return g; }
  TRAINYARD_HD Out target() const { return y; }
  TRAINYARD_HD UpdateStates states() const { return {}; }
  TRAINYARD_HD bool is_skipped() const { return false; }
  TRAINYARD_HD Constants constants() const {
    return {scale == nullptr ? 1.0f : *scale,
            s.bound == 0 ? std::numeric_limits<float>::infinity() : static_cast<float>(s.bound)};
  }
  TRAINYARD_HD static void step(const Constants& c, float g, float& y, float*, float*, float*) {
    y = math::clip_gradient(g, c.factor, c.bound);
  }
};

/// Converts a tensor to another format, for the copies of weights that matrix products read.
struct Conversion {
  struct Params {
    int64_t count;
  } s;
  In x;
  Out y;

  struct Constants {};
  static constexpr bool kReadsTarget = false;
  TRAINYARD_HD In source() const { return x; }
  TRAINYARD_HD Out target() const { return y; }
  TRAINYARD_HD UpdateStates states() const { return {}; }
  TRAINYARD_HD bool is_skipped() const { return false; }
  TRAINYARD_HD Constants constants() const { return {}; }
  TRAINYARD_HD static void step(const Constants&, float x, float& y, float*, float*, float*) {
    y = x;
  }
};

struct ConversionOperands {
  In x;   // [count]
  Out y;  // [count]
};
inline void check(const Conversion::Params& s, const ConversionOperands& o) {
  Contract("conversion").size("count", s.count).given("x", o.x).given("y", o.y);
}

// Converts the params and operands of a contract to the corresponding kind of update.

inline SgdUpdate update_of(const SgdParams& s, const SgdOperands<Views>& o) {
  return {{s, o.g, o.learning_rate, o.p, o.copy}, o.v};
}
inline AdamUpdate update_of(const AdamParams& s, const AdamOperands<Views>& o) {
  return {{s, o.g, o.learning_rate, o.p, o.copy}, o.step, o.m, o.v};
}
inline RmspropUpdate update_of(const RmspropParams& s, const RmspropOperands<Views>& o) {
  return {{s, o.g, o.learning_rate, o.p, o.copy}, o.square, o.a, o.b};
}
inline LionUpdate update_of(const LionParams& s, const LionOperands<Views>& o) {
  return {{s, o.g, o.learning_rate, o.p, o.copy}, o.m};
}
inline MovingAverageUpdate update_of(const MovingAverageParams& s,
                                     const MovingAverageOperands<Views>& o) {
  return {s, o.p, o.step, o.average};
}
inline GradientAccumulation update_of(const AccumulateGradientParams& s,
                                      const AccumulateGradientOperands<Views>& o) {
  return {s, o.g, o.micro_step, o.sum};
}
inline Conversion update_of(const Conversion::Params& s, const ConversionOperands& o) {
  return {s, o.x, o.y};
}
inline GradientClipping update_of(const ClipGradientParams& s,
                                  const ClipGradientOperands<Views>& o) {
  return {s, o.g, o.scale, o.y};
}

/// Asynchronous on `stream`; cudaPeekAtLastError() reports a failed launch.
template <typename U>
void update(const U& u, CUstream_st* stream);

/// Several updates of one kind in one launch, bit-identical to as many single updates. Their
/// operands are in a table, which the caller copies to device memory once, aligned to 256 bytes.
struct UpdateTable {
  std::vector<std::byte> bytes;
  int64_t chunks = 0;  // blocks of the launch
};
template <typename U>
UpdateTable update_table(std::span<const U> updates);
template <typename U>
void update_all(const void* table, int64_t chunks, CUstream_st* stream);

// The functions of the contracts, for one tensor.
template <typename Params, typename Operands>
void check_and_update(const Params& s, const Operands& o, const Run& run) {
  check(s, o);
  update(update_of(s, o), run.stream);
}
inline void sgd(const SgdParams& s, const SgdOperands<Views>& o, Run run) {
  check_and_update(s, o, run);
}
inline void adam(const AdamParams& s, const AdamOperands<Views>& o, Run run) {
  check_and_update(s, o, run);
}
inline void rmsprop(const RmspropParams& s, const RmspropOperands<Views>& o, Run run) {
  check_and_update(s, o, run);
}
inline void lion(const LionParams& s, const LionOperands<Views>& o, Run run) {
  check_and_update(s, o, run);
}
inline void moving_average(const MovingAverageParams& s, const MovingAverageOperands<Views>& o,
                           Run run) {
  check_and_update(s, o, run);
}
inline void accumulate_gradient(const AccumulateGradientParams& s,
                                const AccumulateGradientOperands<Views>& o, Run run) {
  check_and_update(s, o, run);
}
inline void clip_gradient(const ClipGradientParams& s, const ClipGradientOperands<Views>& o,
                          Run run) {
  check_and_update(s, o, run);
}

}  // namespace trainyard::kernels::cuda
