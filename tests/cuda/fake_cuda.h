// tests/cuda/fake_cuda.h: a CUDA runtime, cuBLASLt and cuDNN that compute on the host, so that the
// backend's own code runs in tests where there is no GPU. The module is linked to the real ones.
//
// Device memory is host memory. A stream runs what it is given at once, or records it between
// cudaStreamBeginCapture and cudaStreamEndCapture, where whatever must wait or allocate is refused
// as on a GPU.
#pragma once

#include <cstdint>
#include <functional>

struct CUstream_st;

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
/// Whether cuDNN proposes engines for convolutions.
void set_convolution_engines(bool available);

}  // namespace trainyard::testing
