// kernels/cuda/view.h: tensors as CUDA kernels see them: a pointer, and whether the elements are
// stored as float or as bf16. One kernel serves both: the question is the same for all threads of a
// launch, and these kernels wait for memory, not for it.
#pragma once

#include <cstdint>

#include "kernels/math/bf16.h"
#include "kernels/math/host_device.h"

struct CUstream_st;  // cudaStream_t without the CUDA headers

namespace trainyard::kernels::cuda {

/// A tensor that is read. `data` may be nullptr where a contract allows it.
struct In {
  const void* data = nullptr;
  bool is_bf16 = false;

  TRAINYARD_HD float operator[](int64_t i) const {
    return is_bf16 ? math::widen(static_cast<const math::Bf16*>(data)[i])
                   : static_cast<const float*>(data)[i];
  }
  TRAINYARD_HD In operator+(int64_t elements) const {
    return {static_cast<const char*>(data) + elements * (is_bf16 ? 2 : 4), is_bf16};
  }
  TRAINYARD_HD explicit operator bool() const { return data != nullptr; }
};

/// A tensor that is written, and may be read before. Stores round to what it is stored in.
struct Out {
  void* data = nullptr;
  bool is_bf16 = false;

  TRAINYARD_HD void set(int64_t i, float value) const {
    if (is_bf16) {
      static_cast<math::Bf16*>(data)[i] = math::narrow(value);
    } else {
      static_cast<float*>(data)[i] = value;
    }
  }
  TRAINYARD_HD operator In() const { return {data, is_bf16}; }
  TRAINYARD_HD Out operator+(int64_t elements) const {
    return {static_cast<char*>(data) + elements * (is_bf16 ? 2 : 4), is_bf16};
  }
  TRAINYARD_HD explicit operator bool() const { return data != nullptr; }
};

/// Four neighbours at once: the most that a thread loads in one instruction, so that a warp reads
/// whole lines. `i` is a multiple of 4 and the tensor begins at a multiple of 16 bytes (8 in bf16).
struct alignas(16) Four {
  float v[4];
};
struct alignas(8) FourBf16 {
  math::Bf16 v[4];
};
TRAINYARD_HD inline Four load4(const In& x, int64_t i) {
  if (!x.is_bf16) return *reinterpret_cast<const Four*>(static_cast<const float*>(x.data) + i);
  const FourBf16 s = *reinterpret_cast<const FourBf16*>(static_cast<const math::Bf16*>(x.data) + i);
  return {{math::widen(s.v[0]), math::widen(s.v[1]), math::widen(s.v[2]), math::widen(s.v[3])}};
}
TRAINYARD_HD inline void store4(const Out& y, int64_t i, const Four& f) {
  if (!y.is_bf16) {
    *reinterpret_cast<Four*>(static_cast<float*>(y.data) + i) = f;
    return;
  }
  *reinterpret_cast<FourBf16*>(static_cast<math::Bf16*>(y.data) + i) = {
      {math::narrow(f.v[0]), math::narrow(f.v[1]), math::narrow(f.v[2]), math::narrow(f.v[3])}};
}
/// Whether load4 and store4 may be used on it; nullptr may.
inline bool takes_four(const In& x) {
  return reinterpret_cast<uintptr_t>(x.data) % (x.is_bf16 ? 8 : 16) == 0;
}

}  // namespace trainyard::kernels::cuda
