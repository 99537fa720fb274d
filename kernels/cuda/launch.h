// kernels/cuda/launch.h: how kernels are launched. Compiled by nvcc they run on a GPU; compiled by
// the host's compiler they run on the emulator, so that the same source is tested where there is no
// GPU (emulator.h). What differs is here and nowhere else: kernels use threadIdx, blockIdx,
// blockDim, gridDim, __syncthreads() and __shfl_xor_sync() as CUDA has them, and the macros below.
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/stream.h"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/view.h"

namespace trainyard::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kBlockThreads = 256;
/// A grid-stride loop covers the rest: enough blocks to fill the largest GPU several times over,
/// and within the grid's limit for any element count.
constexpr int64_t kBlocksMax = 65535;

struct Grid {
  int64_t blocks;  // 0: nothing is launched
  int threads = kBlockThreads;
  int shared_bytes = 0;  // of TRAINYARD_DYNAMIC_SHARED; at most 48 KiB
};
/// A thread for each of n elements, or for as many as the grid has.
inline Grid grid_for(int64_t n) {
  return {std::min((n + kBlockThreads - 1) / kBlockThreads, kBlocksMax)};
}

#ifdef __CUDACC__
#define TRAINYARD_KERNEL __global__
/// A kernel of blocks of that many threads, so many of which are to fit a multiprocessor at once:
/// the compiler keeps to the registers that they have.
#define TRAINYARD_KERNEL_OF(threads, blocks) __global__ __launch_bounds__(threads, blocks)
#define TRAINYARD_DEVICE __device__ __forceinline__
/// An array that the threads of a block share: TRAINYARD_SHARED float tile[32][33];
#define TRAINYARD_SHARED __shared__
/// TRAINYARD_DYNAMIC_SHARED(float, row): the block's Grid::shared_bytes, as a pointer `row`.
#define TRAINYARD_DYNAMIC_SHARED(T, name)                     \
  extern __shared__ __align__(16) unsigned char name##_raw[]; \
  T* const name = reinterpret_cast<T*>(name##_raw)

/// Before a loop whose arrays must lie in registers.
#define TRAINYARD_UNROLL _Pragma("unroll")

/// Asynchronous. A launch that failed is told by cudaPeekAtLastError().
template <typename... Parameters, typename... Arguments>
void launch(const Grid& grid, CUstream_st* stream, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  if (grid.blocks == 0) return;  // a grid of no blocks is an error
  kernel<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads),
           static_cast<size_t>(grid.shared_bytes), stream>>>(static_cast<Parameters>(arguments)...);
}
#else
#define TRAINYARD_KERNEL
#define TRAINYARD_KERNEL_OF(threads, blocks)
#define TRAINYARD_DEVICE inline
#define TRAINYARD_SHARED static
#define TRAINYARD_UNROLL
#define TRAINYARD_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(emulator::dynamic_shared())

template <typename... Parameters, typename... Arguments>
void launch(const Grid& grid, CUstream_st* stream, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  if (grid.blocks == 0) return;
  emulator::launch(
      grid.blocks, grid.threads, grid.shared_bytes, stream,
      [kernel, ... values = static_cast<Parameters>(arguments)] { kernel(values...); });
}
#endif

/// The first element of a thread in a grid-stride loop, and the step to its next.
TRAINYARD_DEVICE int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
TRAINYARD_DEVICE int64_t thread_count() { return int64_t{gridDim.x} * blockDim.x; }

/// The packs (view.h, Eight) that a thread takes: from `at` on below `last`, `stride` apart.
struct Packs {
  int32_t at, last, stride;
  /// The u-th from here, or where there is none this one again: loads need no branch.
  TRAINYARD_DEVICE int32_t nth(int u) const { return has(u) ? at + u * stride : at; }
  TRAINYARD_DEVICE bool has(int u) const { return at + u * stride < last; }
};
/// All packs, by all threads of a grid.
TRAINYARD_DEVICE Packs packs_of_thread(int32_t packs) {
  return {static_cast<int32_t>(thread_index()), packs, static_cast<int32_t>(thread_count())};
}
/// Packs whose loads a thread has on their way at once, where it reads so many tensors: 64 bytes
/// and more of each thread keep a GPU's memory busy.
constexpr int in_flight(Stored stored, int tensors) {
  return (tensors > 2 ? 2 : 4) / (stored == Stored::kF32 ? 2 : 1);
}

}  // namespace trainyard::kernels::cuda
