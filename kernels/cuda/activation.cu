// The formulas are those of the CPU, from kernels/math/activations.h; this file only walks memory.
#include "kernels/activation.h"

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

// x and y may be one array: each thread reads an element before it writes it, and no other touches
// it. So neither is __restrict__.
template <typename F>
__global__ void forward(int64_t count, const float* x, float* y) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    y[i] = F::f(x[i]);
  }
}

template <typename F>
__global__ void backward(int64_t count, const float* saved, const float* dy, float* dx) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    dx[i] = F::df(saved[i], dy[i]);
  }
}

}  // namespace

template <typename F>
void activation_forward(int64_t count, const float* x, float* y, CUstream_st* stream) {
  if (count == 0) return;  // a grid of no blocks is an error
  forward<F><<<blocks_for(count), kBlockThreads, 0, stream>>>(count, x, y);
}

template <typename F>
void activation_backward(int64_t count, const float* saved, const float* dy, float* dx,
                         CUstream_st* stream) {
  if (count == 0) return;
  backward<F><<<blocks_for(count), kBlockThreads, 0, stream>>>(count, saved, dy, dx);
}

#define TRAINYARD_INSTANTIATE(F)                                                          \
  template void activation_forward<math::F>(int64_t, const float*, float*, CUstream_st*); \
  template void activation_backward<math::F>(int64_t, const float*, const float*, float*, \
                                             CUstream_st*);
TRAINYARD_INSTANTIATE(Relu)
TRAINYARD_INSTANTIATE(Sigmoid)
TRAINYARD_INSTANTIATE(Tanh)
TRAINYARD_INSTANTIATE(GeluErf)
TRAINYARD_INSTANTIATE(GeluTanh)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::cuda
