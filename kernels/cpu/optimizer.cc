#include "kernels/optimizer.h"

#include <algorithm>

#include "kernels/cpu/simd/update.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

/// Writes the elements [begin, end) of the copy, if there is one.
template <typename O>
void write_copy(const O& o, int64_t begin, int64_t end) {
  if (o.copy != nullptr) std::copy(o.p + begin, o.p + end, o.copy + begin);
}

}  // namespace

void sgd(const SgdParams& s, const SgdOperands<float>& o, Run run) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const math::SgdConstants<float> constants{static_cast<float>(*o.learning_rate * s.rate_factor),
                                            static_cast<float>(s.momentum),
                                            static_cast<float>(s.weight_decay), s.nesterov};
  run.team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    if (o.v == nullptr) {
      update_loops().sgd(constants, end - begin, o.g + begin, o.p + begin);
    } else {
      update_loops().sgd_momentum(constants, end - begin, o.g + begin, o.p + begin, o.v + begin);
    }
    write_copy(o, begin, end);
  });
}

void adam(const AdamParams& s, const AdamOperands<float>& o, Run run) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const auto constants =
      math::adam_constants<float>(*o.learning_rate * s.rate_factor, s.beta1, s.beta2, s.epsilon,
                                  s.weight_decay, s.decoupled, *o.step);
  run.team.parallel_for(s.count, kElementsPerThread / 2, [&](int64_t begin, int64_t end) {
    update_loops().adam(constants, end - begin, o.g + begin, o.p + begin, o.m + begin, o.v + begin);
    write_copy(o, begin, end);
  });
}

void rmsprop(const RmspropParams& s, const RmspropOperands<float>& o, Run run) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const math::RmspropConstants<float> constants{
      static_cast<float>(*o.learning_rate * s.rate_factor),
      static_cast<float>(s.alpha),
      static_cast<float>(1 - s.alpha),
      static_cast<float>(s.epsilon),
      static_cast<float>(s.momentum),
      static_cast<float>(s.weight_decay)};
  run.team.parallel_for(s.count, kElementsPerThread / 2, [&](int64_t begin, int64_t end) {
    update_loops().rmsprop(constants, end - begin, o.g + begin, o.p + begin, o.square + begin,
                           o.a == nullptr ? nullptr : o.a + begin,
                           o.b == nullptr ? nullptr : o.b + begin);
    write_copy(o, begin, end);
  });
}

void lion(const LionParams& s, const LionOperands<float>& o, Run run) {
  check(s, o);
  if (math::is_skipped(*o.learning_rate)) return;
  const double rate = *o.learning_rate * s.rate_factor;
  const math::LionConstants<float> constants{
      static_cast<float>(rate),        static_cast<float>(s.beta1),
      static_cast<float>(1 - s.beta1), static_cast<float>(s.beta2),
      static_cast<float>(1 - s.beta2), static_cast<float>(1 - rate * s.weight_decay)};
  run.team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    update_loops().lion(constants, end - begin, o.g + begin, o.p + begin, o.m + begin);
    write_copy(o, begin, end);
  });
}

void moving_average(const MovingAverageParams& s, const MovingAverageOperands<float>& o, Run run) {
  check(s, o);
  run.team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    if (*o.step == 0) {
      std::copy(o.p + begin, o.p + end, o.average + begin);
    } else {
      update_loops().moving_average(static_cast<float>(1 - s.decay), end - begin, o.p + begin,
                                    o.average + begin);
    }
  });
}

}  // namespace trainyard::kernels::cpu
