// kernels/cuda/view.h: tensors as CUDA kernels see them: a pointer, and how the elements are
// stored. One kernel serves all formats: the question is the same for all threads of a launch, and
// these kernels wait for memory, not for it.
#pragma once

#include <cstdint>

#include "kernels/math/half.h"
#include "kernels/math/host_device.h"

struct CUstream_st;  // cudaStream_t without the CUDA headers

namespace trainyard::kernels::cuda {

enum class Format : uint8_t { kF32, kBf16, kF16 };

TRAINYARD_HD constexpr int64_t element_bytes(Format format) {
  return format == Format::kF32 ? 4 : 2;
}

/// A tensor that is read. `data` may be nullptr where a contract allows it.
struct In {
  const void* data = nullptr;
  Format format = Format::kF32;

  TRAINYARD_HD float operator[](int64_t i) const {
    if (format == Format::kF32) return static_cast<const float*>(data)[i];
    if (format == Format::kBf16) return math::widen(static_cast<const math::Bf16*>(data)[i]);
    return math::widen(static_cast<const math::F16*>(data)[i]);
  }
  TRAINYARD_HD In operator+(int64_t elements) const {
    return {static_cast<const char*>(data) + elements * element_bytes(format), format};
  }
  TRAINYARD_HD explicit operator bool() const { return data != nullptr; }
};

/// A tensor that is written, and may be read before. Stores round to what it is stored in.
struct Out {
  void* data = nullptr;
  Format format = Format::kF32;

  TRAINYARD_HD void set(int64_t i, float value) const {
    if (format == Format::kF32) {
      static_cast<float*>(data)[i] = value;
    } else if (format == Format::kBf16) {
      static_cast<math::Bf16*>(data)[i] = math::narrow<math::Bf16>(value);
    } else {
      static_cast<math::F16*>(data)[i] = math::narrow<math::F16>(value);
    }
  }
  TRAINYARD_HD operator In() const { return {data, format}; }
  TRAINYARD_HD Out operator+(int64_t elements) const {
    return {static_cast<char*>(data) + elements * element_bytes(format), format};
  }
  TRAINYARD_HD explicit operator bool() const { return data != nullptr; }
};

/// Four neighbours at once: the most that a thread loads in one instruction, so that a warp reads
/// whole lines. `i` is a multiple of 4 and the tensor begins at a multiple of 16 bytes (8 where an
/// element has two).
struct alignas(16) Four {
  float v[4];
};
template <typename Half>
struct alignas(8) FourHalf {
  Half v[4];
};
template <typename Half>
TRAINYARD_HD inline Four load4_as(const void* data, int64_t i) {
  const auto s = *reinterpret_cast<const FourHalf<Half>*>(static_cast<const Half*>(data) + i);
  return {{math::widen(s.v[0]), math::widen(s.v[1]), math::widen(s.v[2]), math::widen(s.v[3])}};
}
template <typename Half>
TRAINYARD_HD inline void store4_as(void* data, int64_t i, const Four& f) {
  *reinterpret_cast<FourHalf<Half>*>(static_cast<Half*>(data) + i) = {
      {math::narrow<Half>(f.v[0]), math::narrow<Half>(f.v[1]), math::narrow<Half>(f.v[2]),
       math::narrow<Half>(f.v[3])}};
}
TRAINYARD_HD inline Four load4(const In& x, int64_t i) {
  if (x.format == Format::kF32) {
    return *reinterpret_cast<const Four*>(static_cast<const float*>(x.data) + i);
  }
  return x.format == Format::kBf16 ? load4_as<math::Bf16>(x.data, i)
                                   : load4_as<math::F16>(x.data, i);
}
TRAINYARD_HD inline void store4(const Out& y, int64_t i, const Four& f) {
  if (y.format == Format::kF32) {
    *reinterpret_cast<Four*>(static_cast<float*>(y.data) + i) = f;
  } else if (y.format == Format::kBf16) {
    store4_as<math::Bf16>(y.data, i, f);
  } else {
    store4_as<math::F16>(y.data, i, f);
  }
}
/// Whether load4 and store4 may be used on it; nullptr may.
inline bool takes_four(const In& x) {
  return reinterpret_cast<uintptr_t>(x.data) % (x.format == Format::kF32 ? 16 : 8) == 0;
}

}  // namespace trainyard::kernels::cuda
