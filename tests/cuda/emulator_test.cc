// Catches: an emulator that runs what a GPU refuses, or whose shared memory is kinder than a GPU's,
// so that a kernel which fails on every GPU passes all tests. Each kernel here breaks one rule.
#include "kernels/cuda/emulator.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda/emulated_device.h"
#include "tests/cuda/fake_cuda.h"

namespace trainyard::kernels::cuda {
namespace {

using testing::stream;

/// Writes what its shared arrays contain, then other numbers into them.
TRAINYARD_KERNEL void keep(float* fixed, float* dynamic) {
  TRAINYARD_SHARED(float, kept, [kWarp]);
  TRAINYARD_DYNAMIC_SHARED(float, row);
  const auto i = static_cast<size_t>(thread_index());
  fixed[i] = kept[threadIdx.x];
  dynamic[i] = row[threadIdx.x];
  kept[threadIdx.x] = row[threadIdx.x] = 1;
}

TEST(Emulator, SharedMemoryBeginsAsNanInEachBlock) {
  constexpr int64_t kBlocks = 3;
  std::vector<float> fixed(kBlocks * kWarp), dynamic(kBlocks * kWarp);
  launch({kBlocks, kWarp, kWarp * sizeof(float)}, stream(), keep, fixed.data(), dynamic.data());
  for (const float v : fixed) EXPECT_TRUE(std::isnan(v));
  for (const float v : dynamic) EXPECT_TRUE(std::isnan(v));
}

TRAINYARD_KERNEL void two_arrays(float* y) {
  TRAINYARD_SHARED(float, first, [kWarp]);
  TRAINYARD_SHARED(double, second, [kWarp]);
  first[threadIdx.x] = static_cast<float>(threadIdx.x);
  second[threadIdx.x] = 100 + threadIdx.x;
  const float sum = block_sum(1.0f);  // has an array of its own
  y[threadIdx.x] = first[(threadIdx.x + 1) % kWarp] + static_cast<float>(second[threadIdx.x]) + sum;
}

TEST(Emulator, SharedArraysAreApart) {
  std::vector<float> y(kWarp);
  launch({1, kWarp}, stream(), two_arrays, y.data());
  for (int i = 0; i < kWarp; ++i) {
    EXPECT_EQ(y[static_cast<size_t>(i)], static_cast<float>((i + 1) % kWarp + 100 + i + kWarp));
  }
}

constexpr int kKiB = 1 << 10;

/// Has 40 KiB of static shared memory.
TRAINYARD_KERNEL void forty_kib(int* y) {
  TRAINYARD_SHARED(char, bytes, [40 * kKiB]);
  bytes[threadIdx.x] = 1;
  if (threadIdx.x == 0) *y = bytes[0];
}

TEST(EmulatorDeathTest, StaticAndDynamicSharedMemoryCountTogether) {
  int y = 0;
  launch({1, kWarp, 8 * kKiB}, stream(), forty_kib, &y);
  EXPECT_EQ(y, 1);
  EXPECT_DEATH(launch({1, kWarp, 8 * kKiB + 16}, stream(), forty_kib, &y),
               "more shared memory than a block has: 49168 bytes of 49152");
}

/// Has none, apart from what the launch asks for.
TRAINYARD_KERNEL void dynamic_alone(char* y) {
  TRAINYARD_DYNAMIC_SHARED(char, bytes);
  bytes[threadIdx.x] = 2;
  if (threadIdx.x == 0) *y = bytes[0];
}

TEST(EmulatorDeathTest, MoreSharedMemoryNeedsARaisedLimit) {
  char y = 0;
  const auto raise = [](int bytes) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(&dynamic_alone),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  const auto run = [&](int bytes) { launch({1, kWarp, bytes}, stream(), dynamic_alone, &y); };
  run(48 * kKiB);
  EXPECT_EQ(y, 2);
  EXPECT_DEATH(run(48 * kKiB + 16),
               "more dynamic shared memory than the kernel may have: 49168 bytes of 49152");
  EXPECT_EQ(raise(228 * kKiB), cudaErrorInvalidValue);
  testing::set_device_capability(7, 5);
  EXPECT_EQ(raise(65 * kKiB), cudaErrorInvalidValue);
  testing::set_device_capability(9, 0);
  (void)cudaGetLastError();
  EXPECT_EQ(raise(60 * kKiB), cudaSuccess);
  run(60 * kKiB);
  EXPECT_DEATH(run(60 * kKiB + 16), "61456 bytes of 61440");
}

TRAINYARD_KERNEL void copy_four(const float* x, float* y) { store4(Out{y}, 0, load4(In{x}, 0)); }
TRAINYARD_KERNEL void copy_one(const float* x, float* y) { *y = *x; }

TEST(EmulatorDeathTest, MisalignedAddressesAreRefused) {
  alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(16) float to[8] = {};
  const float* const x = from;
  float* const y = to;
  launch({1, 1}, stream(), copy_four, x + 4, y);
  EXPECT_EQ(y[3], 8);
  EXPECT_DEATH(launch({1, 1}, stream(), copy_four, x + 1, y),
               "a misaligned address, which is 4 bytes past a multiple of 16");
  EXPECT_DEATH(launch({1, 1}, stream(), copy_four, x, y + 2),
               "a misaligned address, which is 8 bytes past a multiple of 16");
  const auto* const between =
      reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(x) + 2);
  EXPECT_DEATH(launch({1, 1}, stream(), copy_one, between, y),
               "a misaligned address, which is 2 bytes past a multiple of 4");
}

TRAINYARD_KERNEL void half_a_barrier() {
  if (threadIdx.x == 0) return;
  (void)warp_reduce(1.0f, Sum());
}

TEST(EmulatorDeathTest, AShuffleNeedsTheWholeWarp) {
  EXPECT_DEATH(launch({1, kWarp}, stream(), half_a_barrier), "never reached a barrier");
}

}  // namespace
}  // namespace trainyard::kernels::cuda
