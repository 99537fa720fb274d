// kernels/cuda/emulator.h: runs CUDA kernels on the host, for tests: their indices, barriers,
// shuffles and atomics, one block after another, the threads of a block as fibers. Which thread
// goes on is drawn anew for each block, so that a missing barrier shows as a wrong or a changing
// result. It says nothing about speed, and cannot see a race whose outcome is the same in every
// order.
//
// Host threads may launch at a time; their grids run one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>

#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
extern Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

/// Runs a grid, or adds it to what its stream records. Aborts, with a sentence, on a barrier that
/// some threads of a block never reach.
void launch(int64_t blocks, int threads, int shared_bytes, CUstream_st* stream,
            std::function<void()> body);
/// What a stream is asked to do besides launches goes through here too: at once, or recorded.
/// Installed by the CUDA runtime that tests bring (tests/cuda/fake_cudart.cc); without one,
/// everything runs at once.
using Submit = void (*)(CUstream_st* stream, std::function<void()> work);
extern Submit submit;
/// Grids that were run or recorded since the program began.
int64_t launch_count();

void* dynamic_shared();
void wait_for_block();
/// `size` bytes of `value` are given to the warp, those of lane ^ mask come back.
void exchange(void* value, int size, int mask);
/// The same, but those of all lanes come back, in their order.
void gather(const void* value, int size, void* all);

}  // namespace emulator

/// Of threads that never run at the same time.
inline int32_t atomicMin(int32_t* at, int32_t value) {
  const int32_t before = *at;
  *at = value < before ? value : before;
  return before;
}
inline void __syncthreads() { emulator::wait_for_block(); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  emulator::exchange(&value, sizeof value, mask);
  return value;
}

}  // namespace trainyard::kernels::cuda
