// tests/cuda/fake_cuda.h: a CUDA runtime, cuBLASLt and cuDNN that compute on the host, so that
// tests run the backend's own code without a GPU. The real module links the real libraries.
//
// Device memory is host memory. A stream runs works immediately, or records them between
// cudaStreamBeginCapture and cudaStreamEndCapture; calls that wait or allocate are then refused, as
// on a GPU. With several devices, streams run as late as possible: only when the host or another
// stream waits, so that a missing wait gives wrong results. A device is used by one thread at a
// time.
//
// The libraries refuse what the real ones refuse, with the same status and with the sentence that
// their log would have (last_refusal): pointers that are null, less aligned than declared, or not
// device memory of the size that the layout requires; leading dimensions that are too small; a
// workspace that is missing, too small, or not at a multiple of 256 bytes. cuDNN itself does not
// refuse the last one: some of its engines compute wrong results then. Each product and each plan
// starts with a workspace of NaN. cuDNN's first proposal is an engine that makes a plan and then
// fails when it runs.
//
// While works are counted (set_counting), nothing is computed and device memory consists of
// addresses only, so that a step of any size can be examined.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::testing {

enum class WorkKind : uint8_t { kKernel, kProduct, kDnn, kCopy, kSet, kExchange };
/// The number of works of each kind.
struct WorkCounts {
  std::array<int64_t, 6> by_kind{};
  int64_t of(WorkKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
  int64_t all() const {
    int64_t sum = 0;
    for (const int64_t n : by_kind) sum += n;
    return sum;
  }
};

/// Runs the work, or adds it to the stream's recording.
void submit_to_stream(CUstream_st* stream, WorkKind kind, std::function<void()> work);
/// Whether the stream is being recorded; then the recording keeps `object` until it is destroyed in
/// both of its forms, as a CUDA graph and as an executable one, like a user object of CUDA.
bool is_recorded(CUstream_st* stream);
void keep_with_recording(CUstream_st* stream, std::shared_ptr<const void> object);
/// While on, works are counted but not run, and newly allocated device memory must not be accessed.
/// The clock of events then advances by one millisecond for each work.
void set_counting(bool on);
/// The works that were run or replayed, and those of the newest recording.
WorkCounts submitted_works();
WorkCounts recorded_works();
/// The number of works that were replayed from recordings.
int64_t replayed_works();
/// The order in which works of a recording run that do not depend on each other: as submitted, the
/// latest submitted first, so that the other branch runs as late as possible, or at random. By
/// turns, each replay uses the next of these three.
enum class ForkOrder : uint8_t { kByTurns, kSubmitted, kLatest, kRandom };
void set_fork_order(ForkOrder order);
/// Makes a replay of a recording with branches take `ms` more or, below 0, less by the clock of
/// events.
void set_branches_cost(double ms);
/// The number of replays of recordings with branches.
int64_t branched_replays();
/// The number of allocated bytes of device memory.
int64_t device_bytes();
/// Limits the size of one allocation of device memory, in bytes; a larger one fails as out of
/// memory.
void set_device_limit(int64_t bytes);
/// Whether cuBLASLt has other epilogues than that of a bias.
void set_product_epilogues(bool available);
/// Makes cuBLASLt as uneven as the real one may be, in a way that the seed draws for each kind of
/// product: by epilogue, types and transposition some products have no algorithm. Of the others,
/// some algorithms fail when they run, need no workspace, or have a ReLU that loses NaN; the last
/// one always runs. The heuristic's first result may be none at all, which only its state tells. 0:
/// everything works.
void set_product_seed(uint64_t seed);
/// How often something that the seed draws has happened.
struct ProductCounts {
  int64_t missing_epilogues = 0, failed_runs = 0, without_workspace = 0, lost_nan = 0,
          empty_results = 0;
};
ProductCounts product_counts();
/// The number of products in 16 bits that were submitted in a form for which cuBLASLt has only slow
/// kernels, because rows or strides of a matrix are no multiples of 16 bytes. Source: cuBLAS
/// documentation, "Tensor Core Usage".
int64_t slow_products();
/// Sets how long algorithm `index` of a product, or the engine `index` places after the first good
/// one, takes by the clock of events, in addition to its real time. The initial values are 300, 100
/// and 200 ms, so that the second is the fastest. Each has its own order of summation.
void set_algorithm_cost(size_t index, double ms);
/// The reason of this thread's newest refusal by cuBLASLt or cuDNN.
std::string last_refusal();
/// Records a refusal; only the fakes call this.
void note_refusal(const std::string& why);
/// Describes what is wrong with memory passed to a library; empty if nothing is.
std::string wrong_memory(const std::string& name, const void* data, int64_t bytes,
                         int64_t alignment);
/// The alignment that the libraries require of a workspace, in bytes.
constexpr int64_t kWorkspaceAlignment = 256;

/// Sets an algorithm that is proposed but fails to start, and one that is proposed but cannot be
/// restored; -1: none.
void set_broken_algorithm(int index);
void set_refused_algorithm(int index);
/// Sets an algorithm whose ReLU loses NaN; -1: none.
void set_nan_loser(int index);
/// The number of products and convolutions created from recorded choices so far.
int64_t restored_algorithms();
/// Only the fakes call the next four.
bool is_algorithm_broken(int64_t index);
bool is_algorithm_refused(int64_t index);
/// Whether ReLU loses NaN in this algorithm alone.
bool loses_nan(int64_t index);
void count_restored_algorithm();
/// Advances the clock for the work that runs.
void spend_algorithm_cost(size_t index);
constexpr int kAlgorithms = 3;
/// Sets the version of cuDNN, in the form of cudnnGetVersion().
void set_dnn_version(size_t version);
/// Sets the name of all devices.
void set_device_model(const char* name);
/// Sets the number of devices; call it before the first one is opened.
void set_device_count(int count);
/// The device stops at the first product after `works` further works, until it is released.
void stall_device(int device, int64_t works);
void release_device();
int device_of(CUstream_st* stream);
/// Sets the result of ncclCommGetAsyncError; 0 is no error.
void set_nccl_async_error(int error);
/// After `exchanges` further ones of this process's ranks, the link breaks: NCCL reports a remote
/// error, and exchanges wait until their rank is aborted; -1: never.
void break_link_after(int64_t exchanges);
/// Sets how this rank's start among several processes ends: with an error, never (ncclInProgress),
/// or successfully (0).
void set_nccl_start(int rank, int error);
/// The number of communicators that NCCL has not yet ended. It ends one that was destroyed or
/// aborted when no recording with its exchanges exists any more.
int64_t open_nccl_comms();
/// Element `i` of a tensor.
inline float read_element(kernels::cuda::Format format, const void* data, int64_t i) {
  return kernels::cuda::In{data, format}[i];
}
inline void write_element(kernels::cuda::Format format, void* data, int64_t i, float value) {
  kernels::cuda::Out{data, format}.set(i, value);
}
/// Rounds an F32 operand as tensor cores do: to the nearest number of 11 significant bits, ties to
/// even.
inline float to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0xFFFu + ((bits >> 13) & 1u)) & ~0x1FFFu);
}
/// After `works` further works, a work breaks the context with this error (by default an illegal
/// memory access), which every later call returns; -1: never. A library notices by a failed launch
/// of its own, which does not set the last error of the runtime that the backend links.
void set_fault_after(int64_t works, int error = 700);
/// Only the fakes call this.
bool is_context_broken();
/// Leaves the error of an earlier failed call, which nobody has cleared, as the last error.
void leave_error(int error);
/// Simulates that another process has exclusive use of all devices.
void set_devices_busy(bool busy);
/// Sets the error with which CUDA does not start on this host; 0: it starts.
void set_start_fault(int error);
/// Simulates a process that has not used CUDA yet: the next call makes the device's context.
void forget_contexts();
/// The flags with which the device's context was made. Throws std::out_of_range without a context.
unsigned context_flags(int device);
/// The number of waits during which the host polled instead of sleeping.
int64_t polling_host_waits();
/// Whether the driver can run the compiled code.
void set_has_code(bool has_code);
/// Sets the CUDA version that the driver supports, in CUDA's encoding; 0: no driver.
void set_driver_cuda(int version);
/// Sets the memory of every device. An allocation that exceeds it fails as out of memory, unless
/// works are only counted.
void set_device_memory(int64_t bytes);
/// Sets the compute capability of every device. Below 8.0 the libraries have neither bfloat16 nor
/// TF32.
void set_device_capability(int major, int minor);
/// Only the fakes call this: whether the devices have bfloat16 and TF32.
bool has_bf16_and_tf32();
/// The number of recordings uploaded so far.
int64_t uploaded_recordings();
/// Whether cuDNN proposes engines for convolutions.
void set_convolution_engines(bool available);
/// Whether cuDNN has engines that compute F32 gradients of filters from operands of 16 bits; they
/// take as long as algorithm 2.
void set_wide_gradients(bool available);
/// Whether cuDNN has other engines for convolutions than the naive one, which takes no time here.
void set_fast_engines(bool available);
/// Whether cuDNN's engines add the old content of their workspace to their result, like a library
/// kernel that relies on another kernel to clear it.
void set_reads_workspace(bool reads);
/// Whether ReLU keeps NaN in cuDNN's engines that are asked to, and in cuBLASLt's epilogues.
void set_relu_heeds_nan(bool heeds);
bool relu_heeds_nan();
/// Whether cuDNN proposes engines for graphs without a convolution (attention).
void set_graph_engines(bool available);

}  // namespace trainyard::testing
