// tests/cuda/fake_cuda.h: a CUDA runtime, cuBLASLt and cuDNN that compute on the host, so that the
// backend's own code runs in tests where there is no GPU. The module is linked to the real ones.
//
// Device memory is host memory. A stream runs what it is given at once, or records it between
// cudaStreamBeginCapture and cudaStreamEndCapture, where whatever must wait or allocate is refused
// as on a GPU.
//
// While it counts (set_counting) nothing computes: memory is an address alone, so that a step of
// any size can be looked at.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

struct CUstream_st;

namespace trainyard::testing {

enum class WorkKind : uint8_t { kKernel, kProduct, kConvolution, kCopy, kSet };
/// How many of each kind.
struct WorkCounts {
  std::array<int64_t, 5> by_kind{};
  int64_t of(WorkKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
  int64_t all() const {
    int64_t sum = 0;
    for (const int64_t n : by_kind) sum += n;
    return sum;
  }
};

/// Runs it, or adds it to what the stream records.
void submit_to_stream(CUstream_st* stream, WorkKind kind, std::function<void()> work);
/// From now on works are counted and not run, and device memory that is allocated cannot be
/// touched. The clock of events then counts them: a millisecond for each.
void set_counting(bool on);
/// All that were run or replayed, and those of the newest recording.
WorkCounts submitted_works();
WorkCounts recorded_works();
/// Works that recordings have replayed.
int64_t replayed_works();
/// Bytes of device memory that are allocated.
int64_t device_bytes();
/// Bytes of device memory that one allocation may have at most; what is more fails as out of
/// memory.
void set_device_limit(int64_t bytes);
/// The so-manieth work from now on is an illegal memory access, which every call tells from then
/// on; -1: none is.
void set_fault_after(int64_t works);
/// Whether cuDNN proposes engines for convolutions.
void set_convolution_engines(bool available);

}  // namespace trainyard::testing
