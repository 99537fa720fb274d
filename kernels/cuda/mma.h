// kernels/cuda/mma.h: products of small matrices with the tensor cores of a warp. The emulator, and
// GPUs whose tensor cores lack a format, compute them by loops.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {

/// The operands of a product in all threads of a warp, each of which passes its own words.
class WarpOperands {
 public:
#ifdef __CUDACC__
  TRAINYARD_DEVICE WarpOperands(const uint32_t (&a)[4], const uint32_t (&b)[2]) : a_(a), b_(b) {}
  /// Return a word of the thread `lane`. All threads of the warp must call them together, with the
  /// same `word`.
  TRAINYARD_DEVICE uint32_t a(int word, int lane) const {
    return __shfl_sync(0xFFFFFFFFu, a_[word], lane);
  }
  TRAINYARD_DEVICE uint32_t b(int word, int lane) const {
    return __shfl_sync(0xFFFFFFFFu, b_[word], lane);
  }

 private:
  const uint32_t (&a_)[4];
  const uint32_t (&b_)[2];
#else
  WarpOperands(const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const Words own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    emulator::gather(&own, sizeof own, of_lane_);
  }
  uint32_t a(int word, int lane) const { return of_lane_[lane].a[word]; }
  uint32_t b(int word, int lane) const { return of_lane_[lane].b[word]; }

 private:
  struct Words {
    uint32_t a[4], b[2];
  };
  Words of_lane_[kWarp];
#endif
};

/// multiply_accumulate() without tensor cores: products and sums in F32, in the order of k.
template <Stored kStored>
TRAINYARD_DEVICE void multiply_in_f32(float (&c)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) {
  const WarpOperands operands(a, b);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  TRAINYARD_UNROLL
  for (int half = 0; half < 2; ++half) {  // of the 16 elements that are summed
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t rows[2], columns[2];
      for (int i = 0; i < 2; ++i) {
        rows[i] = operands.a(2 * half + i, 4 * g + pair);
        columns[i] = operands.b(half, 4 * (2 * t + i) + pair);
      }
      for (int k = 0; k < 2; ++k) {
        for (int i = 0; i < 4; ++i) {
          c[i] += widen_half<kStored>(rows[i / 2], k) * widen_half<kStored>(columns[i % 2], k);
        }
      }
    }
  }
}

/// c [16, 8] += a [16, 16] b [16, 8] with 16-bit operands, summed in F32. All threads of a warp
/// must call it. The fragments of thread `lane`, with g = lane / 4 and t = lane % 4 (PTX ISA,
/// mma.m16n8k16):
///
///   a   words of a[row][k], a[row][k + 1]:  (g, 2t)  (g + 8, 2t)  (g, 2t + 8)  (g + 8, 2t + 8)
///   b   words of b[k][g], b[k + 1][g]:      k = 2t   k = 2t + 8
///   c   c[row][column]:                     (g, 2t)  (g, 2t + 1)  (g + 8, 2t)  (g + 8, 2t + 1)
///
/// GPUs of compute capability 7.5 multiply eight of the 16 elements at a time (mma.m16n8k8, whose
/// fragments are the first or the last half of each of these), and bf16 without tensor cores.
template <Stored kStored>
TRAINYARD_DEVICE void multiply_accumulate(float (&c)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[2]) {
  static_assert(kStored == Stored::kBf16 || kStored == Stored::kF16);
#ifndef __CUDACC__
  multiply_in_f32<kStored>(c, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  if constexpr (kStored == Stored::kBf16) {
    multiply_in_f32<kStored>(c, a, b);
  } else {
    TRAINYARD_UNROLL
    for (int half = 0; half < 2; ++half) {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
  }
#else
  if constexpr (kStored == Stored::kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

/// Rounds to TF32, 11 significant bits with the range of F32, to nearest with ties away from zero
/// (PTX ISA, cvt.rna.tf32.f32). NaN stays NaN.
TRAINYARD_DEVICE float round_to_tf32(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
#else
  constexpr uint32_t kDropped = 13;  // F32 has 24 significant bits
  if (value != value) return value;
  const auto bits = std::bit_cast<uint32_t>(value) + (1u << (kDropped - 1));
  return std::bit_cast<float>(bits >> kDropped << kDropped);
#endif
}

/// c [16, 8] += a [16, 8] b [8, 8] with operands in TF32, summed in F32. All threads of a warp must
/// call it, on compute capability 8.0 or later. The fragments of thread `lane`, with g = lane / 4
/// and t = lane % 4 (PTX ISA, mma.m16n8k8):
///
///   a   a[row][k]:      (g, t)  (g + 8, t)  (g, t + 4)  (g + 8, t + 4)
///   b   b[k][g]:        k = t   k = t + 4
///   c   c[row][column]: (g, 2t)  (g, 2t + 1)  (g + 8, 2t)  (g + 8, 2t + 1)
TRAINYARD_DEVICE void multiply_accumulate_tf32(float (&c)[4], const float (&a)[4],
                                               const float (&b)[2]) {
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#else
  __trap();  // the host code never launches such a kernel on an older GPU
#endif
#else
  struct Operands {
    float a[4], b[2];
  };
  const Operands own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  Operands of_lane[kWarp];
  emulator::gather(&own, sizeof own, of_lane);
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4, t = static_cast<int>(threadIdx.x) % 4;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * t + i % 2;
    for (int k = 0; k < 8; ++k) {
      const Operands& row = of_lane[4 * g + k % 4];
      const Operands& other = of_lane[4 * column + k % 4];
      c[i] += round_to_tf32(row.a[i / 2 + 2 * (k / 4)]) * round_to_tf32(other.b[k / 4]);
    }
  }
#endif
}

}  // namespace trainyard::kernels::cuda
