// kernels/cuda/launch.h: launching of kernels. Compiled by nvcc they run on a GPU; compiled by the
// host's compiler they run on the emulator (emulator.h), so that the same source is tested without
// a GPU. Only this file contains the differences: kernels use threadIdx, blockIdx, blockDim,
// gridDim, __syncthreads() and __shfl_xor_sync() as in CUDA, and the macros below.
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
/// The maximum number of blocks: enough to fill the largest GPU several times, and within the
/// grid's limit. Grid-stride loops process any remaining elements.
constexpr int64_t kBlocksMax = 65535;

struct Grid {
  int64_t blocks;  // 0: nothing is launched
  int threads = kBlockThreads;
  int shared_bytes = 0;  // for TRAINYARD_DYNAMIC_SHARED; at most 48 KiB with the kernel's arrays
};
/// Returns a grid with one thread for each of n elements, up to kBlocksMax blocks.
inline Grid grid_for(int64_t n) {
  return {std::min((n + kBlockThreads - 1) / kBlockThreads, kBlocksMax)};
}

#ifdef __CUDACC__
#define TRAINYARD_KERNEL __global__
/// A kernel with this many threads per block, of which `blocks` blocks must fit on a multiprocessor
/// at the same time; the compiler limits registers accordingly.
#define TRAINYARD_KERNEL_OF(threads, blocks) __global__ __launch_bounds__(threads, blocks)
#define TRAINYARD_DEVICE __device__ __forceinline__
/// TRAINYARD_SHARED(float, tile, [32][33]) declares an array, or without dimensions a variable,
/// that the threads of a block share. It begins with any content.
#define TRAINYARD_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
/// TRAINYARD_DYNAMIC_SHARED(float, row) declares a pointer `row` to the block's Grid::shared_bytes.
#define TRAINYARD_DYNAMIC_SHARED(T, name)                     \
  extern __shared__ __align__(16) unsigned char name##_raw[]; \
  T* const name = reinterpret_cast<T*>(name##_raw)

/// Unrolls the following loop; required if its arrays must be in registers.
#define TRAINYARD_UNROLL _Pragma("unroll")

/// Asynchronous. cudaPeekAtLastError() reports a failed launch.
template <typename... Parameters, typename... Arguments>
void launch(const Grid& grid, CUstream_st* stream, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  if (grid.blocks == 0) return;  // since CUDA rejects an empty grid
  kernel<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads),
           static_cast<size_t>(grid.shared_bytes), stream>>>(static_cast<Parameters>(arguments)...);
}
#else
#define TRAINYARD_KERNEL
#define TRAINYARD_KERNEL_OF(threads, blocks)
#define TRAINYARD_DEVICE inline
#define TRAINYARD_SHARED(T, name, ...)                                                  \
  using name##_Shared = T __VA_ARGS__;                                                  \
  static_assert(std::is_trivially_default_constructible_v<name##_Shared>);              \
  static char name##_key; /* a place of its own for each instantiation of a template */ \
  name##_Shared& name = *static_cast<name##_Shared*>(                                   \
      emulator::static_shared(&name##_key, sizeof(name##_Shared), alignof(name##_Shared)))
#define TRAINYARD_UNROLL
#define TRAINYARD_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(emulator::dynamic_shared())

template <typename... Parameters, typename... Arguments>
void launch(const Grid& grid, CUstream_st* stream, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  if (grid.blocks == 0) return;
  emulator::launch(
      grid.blocks, grid.threads, grid.shared_bytes, stream, reinterpret_cast<const void*>(kernel),
      [kernel, ... values = static_cast<Parameters>(arguments)] { kernel(values...); });
}
#endif

/// Returns the first element of a thread in a grid-stride loop, and the stride to its next element.
TRAINYARD_DEVICE int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
TRAINYARD_DEVICE int64_t thread_count() { return int64_t{gridDim.x} * blockDim.x; }

/// The packs (view.h, Eight) of one thread: at, at + stride, ... below `last`.
struct Packs {
  int32_t at, last, stride;
  /// Returns the u-th pack from here, or if there is none this pack again, so that loads need no
  /// branch.
  TRAINYARD_DEVICE int32_t nth(int u) const { return has(u) ? at + u * stride : at; }
  TRAINYARD_DEVICE bool has(int u) const { return at + u * stride < last; }
};
/// Divides all packs among all threads of a grid.
TRAINYARD_DEVICE Packs packs_of_thread(int32_t packs) {
  return {static_cast<int32_t>(thread_index()), packs, static_cast<int32_t>(thread_count())};
}
/// Returns the number of packs whose loads a thread issues together when it reads `tensors`
/// tensors: at least 64 bytes in flight per thread keep a GPU's memory busy.
constexpr int in_flight(Stored stored, int tensors) {
  return (tensors > 2 ? 2 : 4) / (stored == Stored::kF32 ? 2 : 1);
}

}  // namespace trainyard::kernels::cuda
