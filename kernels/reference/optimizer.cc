#include "kernels/optimizer.h"

namespace trainyard::kernels::reference {

template <typename T>
void sgd(const SgdParams& s, const T* g, const float* learning_rate, T* p, T* v) {
  const math::SgdConstants<T> constants{static_cast<T>(*learning_rate), static_cast<T>(s.momentum),
                                        static_cast<T>(s.weight_decay), s.nesterov};
  for (int64_t i = 0; i < s.count; ++i) {
    math::sgd(constants, g[i], p[i], v == nullptr ? nullptr : &v[i]);
  }
}

template <typename T>
void adam(const AdamParams& s, const T* g, const float* learning_rate, const int64_t* step, T* p,
          T* m, T* v) {
  const auto constants =
      math::adam_constants<T>(static_cast<double>(*learning_rate), s.beta1, s.beta2, s.epsilon,
                              s.weight_decay, s.decoupled, *step);
  for (int64_t i = 0; i < s.count; ++i) math::adam(constants, g[i], p[i], m[i], v[i]);
}

#define TRAINYARD_INSTANTIATE(T)                                          \
  template void sgd<T>(const SgdParams&, const T*, const float*, T*, T*); \
  template void adam<T>(const AdamParams&, const T*, const float*, const int64_t*, T*, T*, T*);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)

}  // namespace trainyard::kernels::reference
