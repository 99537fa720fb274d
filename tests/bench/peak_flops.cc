#include "tests/bench/peak_flops.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace trainyard::bench {
namespace {

constexpr int64_t kRounds = 1 << 20;
constexpr int kChains = 16;  // independent, more than latency x ports

// The empty asm makes each accumulator opaque, so that the compiler can neither drop nor merge
// steps.
__attribute__((target("avx512f"))) float burn_avx512() {
  __m512 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kChains; ++i) {
      acc[i] = _mm512_fmadd_ps(acc[i], a, b);
      asm volatile("" : "+v"(acc[i]));
    }
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += acc[i][0];
  return sum;
}

__attribute__((target("avx2,fma"))) float burn_avx2() {
  __m256 acc[kChains - 4];
  for (int i = 0; i < kChains - 4; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kChains - 4; ++i) {
      acc[i] = _mm256_fmadd_ps(acc[i], a, b);
      asm volatile("" : "+x"(acc[i]));
    }
  }
  float sum = 0;
  for (int i = 0; i < kChains - 4; ++i) sum += acc[i][0];
  return sum;
}

}  // namespace

double measure_peak_gflops(int threads) {
  const bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !__builtin_cpu_supports("fma")) return 0;  // unknown; shares then print as 0
  const double flops_per_thread =
      2.0 * static_cast<double>(kRounds) * (wide ? 16.0 * kChains : 8.0 * (kChains - 4));
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
    }  // joined
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, threads * flops_per_thread / seconds.count() / 1e9);
  }
  return best;
}

}  // namespace trainyard::bench
