// tests/cuda/fake_cuda.h: a CUDA runtime, cuBLASLt and cuDNN that compute on the host, so that the
// backend's own code runs in tests where there is no GPU. The module is linked to the real ones.
//
// Device memory is host memory. A stream runs what it is given at once, or records it between
// cudaStreamBeginCapture and cudaStreamEndCapture, where whatever must wait or allocate is refused
// as on a GPU. Where there are several devices, streams run as late as anybody may let them: when
// the host or another stream waits, so that a wait that was forgotten shows. A device is used by
// one thread at a time.
//
// The libraries refuse what the real ones refuse, by the same status and with the sentence that
// their log would have (last_refusal): pointers that are null, less aligned than was declared, or
// not of device memory as large as the layout says; leading dimensions that are too small; a
// workspace that is missing, too small, or not at a multiple of 256 bytes. The last is more than
// cuDNN refuses: some of its engines compute something else then. Each product and each plan
// begins with a workspace of NaN.
//
// While it counts (set_counting) nothing computes: memory is an address alone, so that a step of
// any size can be looked at.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::testing {

enum class WorkKind : uint8_t { kKernel, kProduct, kDnn, kCopy, kSet, kExchange };
/// How many of each kind.
struct WorkCounts {
  std::array<int64_t, 6> by_kind{};
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
/// Whether cuBLASLt has epilogues beside that of a bias.
void set_product_epilogues(bool available);
/// How long algorithm `index` of a product, or engine `index` behind the first good one, takes by
/// the clock of events, besides what it really takes. At first: 300, 100 and 200 ms, so that the
/// second is the fastest. Each sums in an order of its own.
void set_algorithm_cost(size_t index, double ms);
/// Why cuBLASLt or cuDNN refused a call, the newest of this thread.
std::string last_refusal();
/// For the fakes themselves: notes it.
void note_refusal(const std::string& why);
/// What is wrong with memory that a library is handed, in a sentence; empty: nothing.
std::string wrong_memory(const std::string& name, const void* data, int64_t bytes,
                         int64_t alignment);
/// What the libraries ask of a workspace.
constexpr int64_t kWorkspaceAlignment = 256;

/// An algorithm that is proposed and does not start, and one that is proposed and then not taken
/// back; -1: none.
void set_broken_algorithm(int index);
void set_refused_algorithm(int index);
/// Products and convolutions that were asked for by their choices' words so far.
int64_t restored_algorithms();
/// For the fakes themselves.
bool is_algorithm_broken(int64_t index);
bool is_algorithm_refused(int64_t index);
void count_restored_algorithm();
/// Of a work that runs now.
void spend_algorithm_cost(size_t index);
constexpr int kAlgorithms = 3;
/// What all devices are called.
void set_device_model(const char* name);
/// How many devices there are; before the first is opened.
void set_device_count(int count);
/// A device stops at the first product behind so many more works, until it is released.
void stall_device(int device, int64_t works);
void release_device();
int device_of(CUstream_st* stream);
/// What ncclCommGetAsyncError tells from now on; 0 is no error.
void set_nccl_async_error(int error);
/// How the start of this rank among several processes ends from now on: by an error, never
/// (ncclInProgress), or well (0).
void set_nccl_start(int rank, int error);
/// Communicators that were made and neither destroyed nor aborted.
int64_t open_nccl_comms();
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
/// The so-manieth work from now on breaks the context by this error, at first an illegal memory
/// access, which every call tells from then on; -1: none does. A library notices by a failed launch
/// of its own, which is not in the last error of the runtime that the backend is linked to.
void set_fault_after(int64_t works, int error = 700);
/// For the fakes themselves.
bool is_context_broken();
/// A call that only tried something has failed, and nobody has cleared its error.
void leave_error(int error);
/// Another process has every device for itself.
void set_devices_busy(bool busy);
/// Whether the driver can run what was compiled.
void set_has_code(bool has_code);
/// The version of CUDA that the driver supports, as CUDA tells it; 0: no driver.
void set_driver_cuda(int version);
/// Of every device.
void set_device_memory(int64_t bytes);
/// Uploads of recordings so far.
int64_t uploaded_recordings();
/// Whether cuDNN proposes engines for convolutions.
void set_convolution_engines(bool available);
/// Whether it has engines for filters' gradients in F32 of operands of 16 bits, which take as long
/// as algorithm 2.
void set_wide_gradients(bool available);
/// Whether it has engines for convolutions beside the naive one, which takes no time here.
void set_fast_engines(bool available);
/// Whether cuDNN's engines add what they find in their workspace to their result before they write
/// there: as a library may, whose kernels count on memory that another of them was to clear.
void set_reads_workspace(bool reads);
/// Whether cuDNN's engines keep NaN through ReLU where they are told to, and cuBLASLt's epilogues.
void set_relu_heeds_nan(bool heeds);
bool relu_heeds_nan();
/// And for graphs without a convolution: attention.
void set_graph_engines(bool available);

}  // namespace trainyard::testing
