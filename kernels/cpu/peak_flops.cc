#include "kernels/cpu/peak_flops.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kRounds = 1 << 20;
constexpr int kChains = 12;  // independent accumulators, more than latency x ports

// One assembly block per round keeps the accumulators in registers; a compiler might spill them,
// and the stack would be measured.
__attribute__((target("avx512f"))) float burn_avx512() {
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  __m512 c0 = a, c1 = a, c2 = a, c3 = a, c4 = a, c5 = a, c6 = a, c7 = a, c8 = a, c9 = a, c10 = a,
         c11 = a;
  for (int64_t round = 0; round < kRounds; ++round) {
    asm volatile(
        "vfmadd213ps %12, %13, %0\n vfmadd213ps %12, %13, %1\n vfmadd213ps %12, %13, %2\n"
        "vfmadd213ps %12, %13, %3\n vfmadd213ps %12, %13, %4\n vfmadd213ps %12, %13, %5\n"
        "vfmadd213ps %12, %13, %6\n vfmadd213ps %12, %13, %7\n vfmadd213ps %12, %13, %8\n"
        "vfmadd213ps %12, %13, %9\n vfmadd213ps %12, %13, %10\n vfmadd213ps %12, %13, %11\n"
        : "+v"(c0), "+v"(c1), "+v"(c2), "+v"(c3), "+v"(c4), "+v"(c5), "+v"(c6), "+v"(c7), "+v"(c8),
          "+v"(c9), "+v"(c10), "+v"(c11)
        : "v"(b), "v"(a));
  }
  return (c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11)[0];
}

__attribute__((target("avx2,fma"))) float burn_avx2() {
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  __m256 c0 = a, c1 = a, c2 = a, c3 = a, c4 = a, c5 = a, c6 = a, c7 = a, c8 = a, c9 = a, c10 = a,
         c11 = a;
  for (int64_t round = 0; round < kRounds; ++round) {
    asm volatile(
        "vfmadd213ps %12, %13, %0\n vfmadd213ps %12, %13, %1\n vfmadd213ps %12, %13, %2\n"
        "vfmadd213ps %12, %13, %3\n vfmadd213ps %12, %13, %4\n vfmadd213ps %12, %13, %5\n"
        "vfmadd213ps %12, %13, %6\n vfmadd213ps %12, %13, %7\n vfmadd213ps %12, %13, %8\n"
        "vfmadd213ps %12, %13, %9\n vfmadd213ps %12, %13, %10\n vfmadd213ps %12, %13, %11\n"
        : "+x"(c0), "+x"(c1), "+x"(c2), "+x"(c3), "+x"(c4), "+x"(c5), "+x"(c6), "+x"(c7), "+x"(c8),
          "+x"(c9), "+x"(c10), "+x"(c11)
        : "x"(b), "x"(a));
  }
  return (c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11)[0];
}

}  // namespace

double measure_peak_gflops(int threads, int vector_bits) {
  const bool wide = vector_bits >= 512 && __builtin_cpu_supports("avx512f");
  if (!wide && !__builtin_cpu_supports("fma")) return 0;  // unknown: shares of it are printed as 0
  const double flops_per_thread =
      2.0 * static_cast<double>(kRounds) * (wide ? 16.0 : 8.0) * kChains;
  double best = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> pool;
      for (int i = 0; i < threads; ++i) {
        pool.emplace_back([wide] {
          volatile float keep = wide ? burn_avx512() : burn_avx2();
          (void)keep;
        });
      }
    }  // the threads are joined
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, threads * flops_per_thread / seconds.count() / 1e9);
  }
  return best;
}

}  // namespace trainyard::kernels::cpu
