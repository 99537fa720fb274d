#include "kernels/optimizer.h"

#include "kernels/cpu/simd/update.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

void sgd(const SgdParams& s, const float* g, const float* learning_rate, float* p, float* v,
         Team& team) {
  const math::SgdConstants<float> constants{*learning_rate, static_cast<float>(s.momentum),
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
  const auto constants =
      math::adam_constants<float>(static_cast<double>(*learning_rate), s.beta1, s.beta2, s.epsilon,
                                  s.weight_decay, s.decoupled, *step);
  team.parallel_for(s.count, kElementsPerThread / 2, [&](int64_t begin, int64_t end) {
    update_loops().adam(constants, end - begin, g + begin, p + begin, m + begin, v + begin);
  });
}

}  // namespace trainyard::kernels::cpu
