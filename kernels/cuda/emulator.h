// kernels/cuda/emulator.h: runs CUDA kernels on the host, for tests, with their indices, barriers,
// shuffles and atomics. Blocks run one after another; the threads of a block are fibers. Their
// order is randomized for each block, so that a missing barrier shows as a wrong or varying result.
// The emulator says nothing about speed, and cannot detect a race whose outcome is the same in
// every order.
//
// Several host threads may launch at the same time; their grids run one after another.
#pragma once

#include <cstddef>
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

/// Runs a grid of `kernel`, or adds it to what its stream records. Aborts with a message if some
/// threads of a block never reach a barrier, if a block's shared memory exceeds its limit, or if an
/// address is not aligned for what is loaded or stored there.
void launch(int64_t blocks, int threads, int shared_bytes, CUstream_st* stream, const void* kernel,
            std::function<void()> body);
/// Raises the limit of a kernel's dynamic shared memory, as cudaFuncSetAttribute does. False if the
/// emulated GPU does not offer so much.
bool raise_shared_limit(const void* kernel, int bytes);
/// Sets the most that the emulated GPU offers; at first 227 KiB, as on compute capability 9.0.
void set_raised_max(int bytes);
/// All work of a stream passes through this function, which runs or records it. The CUDA runtime of
/// the tests (tests/cuda/fake_cudart.cc) installs it; without one, everything runs immediately.
using Submit = void (*)(CUstream_st* stream, std::function<void()> work);
extern Submit submit;
/// Returns the number of grids that were run or recorded since the program began.
int64_t launch_count();

void* dynamic_shared();
/// Returns the memory of a static shared array of the running block. `key` identifies the array.
void* static_shared(const void* key, size_t bytes, size_t alignment);
void wait_for_block();
/// Passes `size` bytes of `value` to the warp, and replaces them by those of lane ^ mask.
void exchange(void* value, int size, int mask);
/// Passes `size` bytes of `value` to the warp; `all` receives those of all lanes, in order.
void gather(const void* value, int size, void* all);

}  // namespace emulator

/// Needs no synchronization, since emulated threads never run at the same time.
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
