// kernels/cuda/view.h: tensors as CUDA kernels access them: a pointer, and the storage format of
// the elements. One kernel serves all formats with a run-time check, which has the same result in
// all threads of a launch. The check keeps the compiler from issuing the loads of several elements
// together. Therefore the kernels in which a convolutional network spends most of its time are
// compiled for each format that all operands share (with_stored), and process eight elements at a
// time (Eight).
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/math/half.h"
#include "kernels/math/host_device.h"

namespace trainyard::kernels::cuda {

enum class Format : uint8_t { kF32, kBf16, kF16 };

TRAINYARD_HD constexpr int64_t element_bytes(Format format) {
  return format == Format::kF32 ? 4 : 2;
}

/// A tensor that is read. `data` may be nullptr if the contract allows it.
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

/// A tensor that is written, and may be read first. Stores round to its storage format.
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

/// Four adjacent elements, the most that a thread loads in one instruction, so that a warp reads
/// whole cache lines. `i` must be a multiple of 4, and the tensor must be aligned to 16 bytes (8
/// bytes if elements have 16 bits).
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
/// Whether x is aligned for load4 and store4; true for nullptr.
inline bool takes_four(const In& x) {
  return reinterpret_cast<uintptr_t>(x.data) % (x.format == Format::kF32 ? 16 : 8) == 0;
}

/// The storage format of all operands of a kernel, as known at compile time; kEach: the formats may
/// differ.
enum class Stored : uint8_t { kF32, kBf16, kF16, kEach };

/// Returns the common storage format of all operands, or kEach; null operands are ignored.
inline Stored stored_of(std::initializer_list<In> operands) {
  bool found = false;
  Format format = Format::kF32;
  for (const In& x : operands) {
    if (!x) continue;
    if (found && x.format != format) return Stored::kEach;
    format = x.format;
    found = true;
  }
  return static_cast<Stored>(format);
}
/// Calls f with the operands' common format as a std::integral_constant<Stored, ...>.
template <typename F>
void with_stored(std::initializer_list<In> operands, const F& f) {
  switch (stored_of(operands)) {
    case Stored::kF32:
      return f(std::integral_constant<Stored, Stored::kF32>());
    case Stored::kBf16:
      return f(std::integral_constant<Stored, Stored::kBf16>());
    case Stored::kF16:
      return f(std::integral_constant<Stored, Stored::kF16>());
    case Stored::kEach:
      return f(std::integral_constant<Stored, Stored::kEach>());
  }
}

/// Rounds two elements to 16 bits and packs them into a word, the first in the lower half. A GPU of
/// compute capability 8.0 or later does both with one instruction, with the same bits as narrow(),
/// except that every NaN becomes its single NaN.
template <Stored kStored>
TRAINYARD_HD inline uint32_t narrow_pair(float first, float second) {
  static_assert(kStored == Stored::kBf16 || kStored == Stored::kF16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t word;
  if constexpr (kStored == Stored::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  }
  return word;
#else
  using Half = std::conditional_t<kStored == Stored::kBf16, math::Bf16, math::F16>;
  return math::narrow<Half>(first).bits | static_cast<uint32_t>(math::narrow<Half>(second).bits)
                                              << 16;
#endif
}
template <Stored kStored>
TRAINYARD_HD inline float widen_half(uint32_t word, int half) {
  static_assert(kStored == Stored::kBf16 || kStored == Stored::kF16);
  if constexpr (kStored == Stored::kBf16) {
    return std::bit_cast<float>(half == 0 ? word << 16 : word & 0xFFFF0000u);
  } else {
    return math::widen(math::F16{static_cast<uint16_t>(half == 0 ? word : word >> 16)});
  }
}

/// Eight adjacent elements in their storage format: 16 bytes, or in F32 two times 16 bytes, so that
/// a load occupies few registers until its values are used. `pack` counts groups of eight; the
/// tensor must be aligned to 16 bytes.
struct alignas(16) FourWords {
  uint32_t w[4];
};
template <Stored kStored>
struct Eight {
  static_assert(kStored != Stored::kEach);
  static constexpr int kParts = kStored == Stored::kF32 ? 2 : 1;
  FourWords part[kParts];

  TRAINYARD_HD float operator[](int k) const {
    if constexpr (kStored == Stored::kF32) {
      return std::bit_cast<float>(part[k / 4].w[k % 4]);
    } else {
      return widen_half<kStored>(part[0].w[k / 2], k % 2);
    }
  }
};
template <Stored kStored>
TRAINYARD_HD inline Eight<kStored> load8(const In& x, int32_t pack) {
  constexpr int kParts = Eight<kStored>::kParts;
  const auto* from = static_cast<const FourWords*>(x.data) + int64_t{pack} * kParts;
  Eight<kStored> e;
  for (int k = 0; k < kParts; ++k) e.part[k] = from[k];
  return e;
}
template <Stored kStored>
TRAINYARD_HD inline void store8(const Out& y, int32_t pack, const float (&v)[8]) {
  constexpr int kParts = Eight<kStored>::kParts;
  auto* to = static_cast<FourWords*>(y.data) + int64_t{pack} * kParts;
  if constexpr (kStored == Stored::kF32) {
    for (int64_t k = 0; k < 2; ++k) {
      to[k] = {{std::bit_cast<uint32_t>(v[4 * k]), std::bit_cast<uint32_t>(v[4 * k + 1]),
                std::bit_cast<uint32_t>(v[4 * k + 2]), std::bit_cast<uint32_t>(v[4 * k + 3])}};
    }
  } else {
    to[0] = {{narrow_pair<kStored>(v[0], v[1]), narrow_pair<kStored>(v[2], v[3]),
              narrow_pair<kStored>(v[4], v[5]), narrow_pair<kStored>(v[6], v[7])}};
  }
}
/// Whether load8 and store8 may be used on these operands of `elements` elements each: they must
/// have the same format, be aligned, and be small enough that the indices of packs, and a grid's
/// strides between them, fit 32 bits.
inline bool takes_eight(int64_t elements, std::initializer_list<In> operands) {
  if (elements % 8 != 0 || elements / 8 >= int64_t{1} << 30) return false;
  for (const In& x : operands) {
    if (reinterpret_cast<uintptr_t>(x.data) % 16 != 0) return false;
  }
  return stored_of(operands) != Stored::kEach;
}
/// Like with_stored(), for operands that have one format according to takes_eight().
template <typename F>
void with_one_format(std::initializer_list<In> operands, const F& f) {
  with_stored(operands, [&](auto stored) {
    if constexpr (stored.value != Stored::kEach) f(stored);
  });
}

}  // namespace trainyard::kernels::cuda
