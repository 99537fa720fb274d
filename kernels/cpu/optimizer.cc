#include "kernels/optimizer.h"

#include <algorithm>

#include "kernels/cpu/simd/update.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

void sgd(const SgdParams& s, const float* g, const float* learning_rate, float* p, float* v,
         Team& team) {
  if (math::is_skipped(*learning_rate)) return;
  const math::SgdConstants<float> constants{static_cast<float>(*learning_rate * s.rate_factor),
                                            static_cast<float>(s.momentum),
                                            static_cast<float>(s.weight_decay), s.nesterov};
  team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    if (v == nullptr) {
      update_loops().sgd(constants, end - begin, g + begin, p + begin);
    } else {
      update_loops().sgd_momentum(constants, end - begin, g + begin, p + begin, v + begin);
    }
  });
}

void adam(const AdamParams& s, const float* g, const float* learning_rate, const int64_t* step,
          float* p, float* m, float* v, Team& team) {
  if (math::is_skipped(*learning_rate)) return;
  const auto constants =
      math::adam_constants<float>(*learning_rate * s.rate_factor, s.beta1, s.beta2, s.epsilon,
                                  s.weight_decay, s.decoupled, *step);
  team.parallel_for(s.count, kElementsPerThread / 2, [&](int64_t begin, int64_t end) {
    update_loops().adam(constants, end - begin, g + begin, p + begin, m + begin, v + begin);
  });
}

void rmsprop(const RmspropParams& s, const float* g, const float* learning_rate, float* p,
             float* square, float* a, float* b, Team& team) {
  if (math::is_skipped(*learning_rate)) return;
  const math::RmspropConstants<float> constants{static_cast<float>(*learning_rate * s.rate_factor),
                                                static_cast<float>(s.alpha),
                                                static_cast<float>(1 - s.alpha),
                                                static_cast<float>(s.epsilon),
                                                static_cast<float>(s.momentum),
                                                static_cast<float>(s.weight_decay)};
  team.parallel_for(s.count, kElementsPerThread / 2, [&](int64_t begin, int64_t end) {
    update_loops().rmsprop(constants, end - begin, g + begin, p + begin, square + begin,
                           a == nullptr ? nullptr : a + begin, b == nullptr ? nullptr : b + begin);
  });
}

void lion(const LionParams& s, const float* g, const float* learning_rate, float* p, float* m,
          Team& team) {
  if (math::is_skipped(*learning_rate)) return;
  const double rate = *learning_rate * s.rate_factor;
  const math::LionConstants<float> constants{
      static_cast<float>(rate),        static_cast<float>(s.beta1),
      static_cast<float>(1 - s.beta1), static_cast<float>(s.beta2),
      static_cast<float>(1 - s.beta2), static_cast<float>(1 - rate * s.weight_decay)};
  team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    update_loops().lion(constants, end - begin, g + begin, p + begin, m + begin);
  });
}

void moving_average(const MovingAverageParams& s, const float* p, const int64_t* step,
                    float* average, Team& team) {
  team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    if (*step == 0) {
      std::copy(p + begin, p + end, average + begin);
    } else {
      update_loops().moving_average(static_cast<float>(1 - s.decay), end - begin, p + begin,
                                    average + begin);
    }
  });
}

}  // namespace trainyard::kernels::cpu
