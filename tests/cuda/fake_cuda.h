// tests/cuda/fake_cuda.h: a CUDA runtime, cuBLASLt and cuDNN that compute on the host, so that the
// backend's own code runs in tests where there is no GPU. The module is linked to the real ones.
//
// Device memory is host memory. A stream runs what it is given at once, or records it between
// cudaStreamBeginCapture and cudaStreamEndCapture, where whatever must wait or allocate is refused
// as on a GPU. Where there are several devices, streams run as late as anybody may let them: when
// the host or another stream waits, so that a wait that was forgotten shows. A device is used by
// one thread at a time.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>

#include "kernels/cuda/view.h"

namespace trainyard::testing {

/// Runs it, or adds it to what the stream records.
void submit_to_stream(CUstream_st* stream, std::function<void()> work);
/// Works that recordings have replayed.
int64_t replayed_works();
/// Bytes of device memory that are allocated.
int64_t device_bytes();
/// Bytes of device memory that one allocation may have at most; what is more fails as out of
/// memory.
void set_device_limit(int64_t bytes);
/// Whether cuBLASLt has epilogues beside that of a bias.
void set_product_epilogues(bool available);
/// How many devices there are; before the first is opened.
void set_device_count(int count);
/// A device stops when it has run so many more works, until it is released.
void stall_device(int device, int64_t works);
void release_device();
int device_of(CUstream_st* stream);
/// What ncclCommGetAsyncError tells from now on; 0 is no error.
void set_nccl_async_error(int error);
/// An element of a tensor.
inline float read_element(kernels::cuda::Format format, const void* data, int64_t i) {
  return kernels::cuda::In{data, format}[i];
}
inline void write_element(kernels::cuda::Format format, void* data, int64_t i, float value) {
  kernels::cuda::Out{data, format}.set(i, value);
}
/// As tensor cores take an F32 operand: to the nearest of 11 significant bits, ties to even.
inline float to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0xFFFu + ((bits >> 13) & 1u)) & ~0x1FFFu);
}
/// Whether cuDNN proposes engines for convolutions.
void set_convolution_engines(bool available);

}  // namespace trainyard::testing
