// The functions of the CUDA runtime that the backend calls. See fake_cuda.h.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/alignment.h"
#include "kernels/cuda/emulator.h"
#include "tests/cuda/fake_cuda.h"

using trainyard::testing::ForkOrder;
using trainyard::testing::WorkCounts;
using trainyard::testing::WorkKind;

struct Work {
  std::optional<WorkKind> kind;  // none: waits for another stream, or reads the clock
  std::function<void()> run;
};

/// A work of a recording: its place among the works, in the order of submission.
struct CUgraphNode_st {
  size_t index;
};
/// The nodes on which the next work of a recorded stream depends.
using Ends = std::vector<cudaGraphNode_t>;

/// An item of a recording; items are in the order of submission.
struct Recorded {
  enum Kind { kWork, kRecord, kWait } kind;
  CUstream_st* stream;
  Work work;
  CUevent_st* event;
  std::vector<size_t> after = {};  // the works that this work depends on
};
using Kept = std::vector<std::shared_ptr<const void>>;
struct CUstream_st {
  int device = 0;
  std::deque<Work> queue;             // submitted, but not yet run
  int64_t submitted = 0, done = 0;    // numbers of works
  CUstream_st* origin = nullptr;      // the origin of the recording that this is part of
  int64_t works = 0, joined = 0;      // works recorded here, and those that the origin waits for
  bool broken = false;                // a call was made that cannot be recorded
  std::vector<Recorded> recorded;     // the recording, if this is an origin stream
  std::vector<CUstream_st*> members;  // streams of this origin's recording
  Kept kept;                          // objects that this origin's recording keeps
  Ends ends;                          // dependencies of this stream's next work
  std::deque<CUgraphNode_st> nodes;   // the works of this origin's recording
  bool has_branches = false;          // whether the dependencies of this origin were changed
};
struct CUevent_st {
  bool timed = false;
  bool sleeps = false;  // whether the host sleeps while it waits for the event
  bool recorded = false;
  std::shared_ptr<double> ms;     // set when the stream reaches the event
  CUstream_st* stream = nullptr;  // nullptr: nothing to wait for
  int64_t position = 0;           // the event is behind so many works of the stream
  CUstream_st* origin = nullptr;  // the recording that contains the event, if any
  int64_t works = 0;              // the event is behind so many works of its stream's recording
  Ends ends;                      // the event is behind these works of the recording
};
struct CUgraph_st {
  std::vector<Recorded> recorded;
  Kept kept;
  bool has_branches = false;
};
struct CUgraphExec_st {
  std::vector<Recorded> recorded;
  Kept kept;
  bool has_branches = false;
};

namespace {

std::mutex mutex;  // protects the allocations and the counts
struct Allocation {
  int64_t bytes;
  bool is_address_alone;
};
std::map<void*, Allocation> allocations;
// The alignment of cudaMalloc. Addresses are odd multiples of it, so that code which relies on a
// larger alignment fails.
constexpr int64_t kAddressAlignment = 256;
bool counts_only = false;
WorkCounts submitted, newest_recording;
std::atomic<int64_t> allocated = 0;
int64_t limit = int64_t{1} << 34;
std::atomic<int64_t> replayed = 0;
thread_local CUstream_st* recording_stream = nullptr;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;
// TRAINYARD_FAKE_CUDA_DEVICES sets the number of devices in tests of a whole daemon.
int device_count = [] {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_DEVICES");
  return text != nullptr ? std::atoi(text) : 1;
}();
bool runs_late = device_count > 1;

struct {
  std::mutex mutex;
  std::condition_variable released;
  int device = -1;
  int64_t works = 0;  // works that may still run
  bool stalled = false;
} stall;

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

// TRAINYARD_FAKE_CUDA_FAULT, for tests of a whole daemon: "after=N" is an illegal memory access in
// the N-th work, which every later call returns, as on a GPU; "wrong" makes copies to the host add
// to a number; with "busy=FILE" another process has the devices as long as FILE exists; with
// "start=N,FILE" CUDA does not start, with error N, as long as FILE exists.
std::atomic<int64_t> works_before_fault = [] {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_FAULT");
  return text != nullptr && std::strncmp(text, "after=", 6) == 0 ? std::atoll(text + 6) : -1;
}();
const bool computes_wrongly = [] {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_FAULT");
  return text != nullptr && std::strcmp(text, "wrong") == 0;
}();
std::atomic<int> context_error = cudaErrorIllegalAddress;
bool is_lost() { return works_before_fault == 0; }
cudaError_t lost() { return static_cast<cudaError_t>(context_error.load()); }

const std::string busy_file = [] {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_FAULT");
  return text != nullptr && std::strncmp(text, "busy=", 5) == 0 ? text + 5 : "";
}();
struct StartFault {
  int error = 0;
  std::string file;
};
const StartFault fault_of_file = []() -> StartFault {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_FAULT");
  const char* const comma = text != nullptr ? std::strchr(text, ',') : nullptr;
  if (comma == nullptr || std::strncmp(text, "start=", 6) != 0) return {};
  return {std::atoi(text + 6), comma + 1};
}();
int start_error = 0;

/// The error with which CUDA does not start in this process; cudaSuccess if it does.
cudaError_t fault_at_start() {
  if (start_error != 0) return static_cast<cudaError_t>(start_error);
  const bool is_there =
      !fault_of_file.file.empty() && access(fault_of_file.file.c_str(), F_OK) == 0;
  return is_there ? static_cast<cudaError_t>(fault_of_file.error) : cudaSuccess;
}

bool devices_busy = false, has_code = true;
// The flags with which each device's context was made, by device.
std::map<int, unsigned> contexts;
int64_t polling_waits = 0;

/// Makes the device's context with these flags unless it exists.
cudaError_t need_context(int device, unsigned flags) {
  if (devices_busy || (!busy_file.empty() && access(busy_file.c_str(), F_OK) == 0)) {
    return fail(cudaErrorDevicesUnavailable);
  }
  const std::scoped_lock lock(mutex);
  contexts.try_emplace(device, flags);
  return cudaSuccess;
}

/// Whether the host sleeps while it waits for a stream of the device.
bool has_sleeping_context(int device) {
  const std::scoped_lock lock(mutex);
  const auto made = contexts.find(device);
  return made != contexts.end() && (made->second & cudaDeviceScheduleBlockingSync) != 0;
}

/// Counts a wait of the host, unless the host sleeps.
void note_wait(bool sleeps) {
  const std::scoped_lock lock(mutex);
  if (!sleeps) ++polling_waits;
}
int driver_cuda = CUDART_VERSION;
int64_t device_memory = int64_t{80} << 30, uploaded = 0;

/// Reads CUDA_VISIBLE_DEVICES once, as CUDA does. The list ends at a number without a device; every
/// UUID (of fake_nvml or of a real driver) counts as a device.
int visible_devices() {
  static const std::optional<std::string> setting = []() -> std::optional<std::string> {
    const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
    if (text == nullptr) return std::nullopt;
    return text;
  }();
  if (!setting) return device_count;
  int count = 0;
  for (const char* at = setting->c_str(); *at != '\0'; ++count) {
    if (std::strncmp(at, "GPU-", 4) != 0 && std::strncmp(at, "MIG-", 4) != 0) {
      char* end = nullptr;
      const long index = std::strtol(at, &end, 10);
      if (end == at || index < 0 || index >= device_count) break;
    }
    at += std::strcspn(at, ",");
    if (*at == ',') ++at;
  }
  return count;
}

/// Refuses a call that must not happen while a stream records, whatever the context's state is.
cudaError_t may_not_record() {
  if (recording_stream == nullptr) return cudaSuccess;
  recording_stream->broken = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}
cudaError_t must_not_record() { return is_lost() ? fail(lost()) : may_not_record(); }

void wait_if_stalled(int device, WorkKind kind) {
  std::unique_lock lock(stall.mutex);
  if (stall.device != device || stall.works-- > 0 || kind != WorkKind::kProduct) return;
  stall.stalled = true;
  stall.released.wait(lock, [] { return !stall.stalled; });
}

void count(WorkCounts& counts, WorkKind kind) { ++counts.by_kind[static_cast<size_t>(kind)]; }

/// Runs the stream's queued works up to a position.
void drain(CUstream_st& stream, int64_t position) {
  while (stream.done < position && !stream.queue.empty()) {
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (work.kind) {
      wait_if_stalled(stream.device, *work.kind);
      if (works_before_fault > 0 && --works_before_fault == 0 && work.kind == WorkKind::kKernel) {
        last_error = lost();
      }
      const std::scoped_lock lock(mutex);
      count(submitted, *work.kind);
    }
    // A work that waits for another stream calls drain() recursively.
    if (!is_lost() && !(counts_only && work.kind)) work.run();
    ++stream.done;
  }
}

void enqueue(CUstream_st& stream, Work work) {
  stream.queue.push_back(std::move(work));
  ++stream.submitted;
  if (!runs_late) drain(stream, stream.submitted);
}

thread_local std::string refusal;

/// The bytes from an address to the end of its allocation; 0 if it is in none.
int64_t device_bytes_at(const void* address) {
  const std::scoped_lock lock(mutex);
  auto it = allocations.upper_bound(const_cast<void*>(address));
  if (it == allocations.begin()) return 0;
  --it;
  const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(it->first);
  return std::max<int64_t>(0, it->second.bytes - static_cast<int64_t>(offset));
}
/// Whether the range is within device memory; checked for copies and fills.
bool is_device_range(const void* memory, size_t size) {
  return device_bytes_at(memory) >= static_cast<int64_t>(size);
}

/// The pretended times of algorithms, in milliseconds.
std::array<std::atomic<double>, trainyard::testing::kAlgorithms> algorithm_costs = {300, 100, 200};
std::atomic<double> spent_ms = 0;
void spend(double ms) {
  double before = spent_ms;
  while (!spent_ms.compare_exchange_weak(before, before + ms)) {
  }
}
std::atomic<const char*> device_model = "Emulated GPU";
std::atomic<int> broken_algorithm = -1, refused_algorithm = -1;
std::atomic<int64_t> restored = 0;

std::atomic<int> capability = 90, nan_loser = -1;

double now_ms() {
  if (counts_only) return static_cast<double>(submitted.all());
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count() + spent_ms;
}

void record(CUevent_st& event, CUstream_st& stream) {
  event.recorded = true;
  event.ms = std::make_shared<double>(0);
  event.stream = &stream;
  // The event may be destroyed before the stream reaches this work.
  enqueue(stream, {std::nullopt, [ms = event.ms] { *ms = now_ms(); }});
  event.position = stream.submitted;
}

void wait_for(CUstream_st& stream, const CUevent_st& event) {
  if (event.stream == nullptr || event.stream == &stream) return;
  // An empty work keeps the place in the queue; the other stream runs only when this work is
  // reached.
  CUstream_st* const other = event.stream;
  const int64_t position = event.position;
  if (other->done >= position) return;
  enqueue(stream, {std::nullopt, [other, position] { drain(*other, position); }});
}

void add_to_recording(Recorded item) {
  CUstream_st* const stream = item.stream;
  CUstream_st* const origin = stream->origin;
  if (item.kind == Recorded::kWork) {
    ++stream->works;
    for (const cudaGraphNode_t node : stream->ends) item.after.push_back(node->index);
    origin->nodes.push_back({origin->nodes.size()});
    stream->ends = {&origin->nodes.back()};
  } else if (item.kind == Recorded::kRecord) {
    item.event->ends = stream->ends;
  } else {
    const Ends& more = item.event->ends;
    stream->ends.insert(stream->ends.end(), more.begin(), more.end());
  }
  origin->recorded.push_back(std::move(item));
}

ForkOrder fork_order = ForkOrder::kByTurns;
int64_t branched = 0;  // replays of recordings with branches
double branches_cost = 0;

/// Returns an order of the works that their dependencies allow. A GPU may run them in any.
std::vector<size_t> order_of(const std::vector<Recorded>& works, ForkOrder order) {
  std::vector<size_t> waiting(works.size());
  std::vector<std::vector<size_t>> releases(works.size());
  for (size_t k = 0; k < works.size(); ++k) {
    waiting[k] = works[k].after.size();
    for (const size_t before : works[k].after) releases.at(before).push_back(k);
  }
  std::set<size_t> ready;
  for (size_t k = 0; k < works.size(); ++k) {
    if (waiting[k] == 0) ready.insert(k);
  }
  std::mt19937_64 random(static_cast<uint64_t>(branched));
  std::vector<size_t> result;
  while (!ready.empty()) {
    auto next = ready.begin();
    if (order == ForkOrder::kLatest) next = std::prev(ready.end());
    if (order == ForkOrder::kRandom) {
      std::advance(next, static_cast<std::ptrdiff_t>(random() % ready.size()));
    }
    const size_t k = *next;
    ready.erase(next);
    result.push_back(k);
    for (const size_t released : releases[k]) {
      if (--waiting[released] == 0) ready.insert(released);
    }
  }
  if (result.size() != works.size()) std::abort();
  return result;
}

/// The emulator submits its kernel launches here, so they are queued like all other works.
const bool installed = [] {
  trainyard::kernels::cuda::emulator::submit = [](CUstream_st* stream, std::function<void()> run) {
    trainyard::testing::submit_to_stream(stream, WorkKind::kKernel, std::move(run));
  };
  return true;
}();

void submit(CUstream_st* stream, Work work) {
  // The backend must not use the default stream, nor a stream of another device than the current
  // one.
  if (stream == nullptr || stream->device != current_device) std::abort();
  if (stream->origin != nullptr) {
    add_to_recording({Recorded::kWork, stream, std::move(work), nullptr});
    return;
  }
  if (!is_lost()) return enqueue(*stream, std::move(work));
  if (work.kind == WorkKind::kKernel) last_error = lost();
}

}  // namespace

namespace trainyard::testing {

void submit_to_stream(CUstream_st* stream, WorkKind kind, std::function<void()> work) {
  submit(stream, {kind, std::move(work)});
}
bool is_recorded(CUstream_st* stream) { return stream->origin != nullptr; }
void keep_with_recording(CUstream_st* stream, std::shared_ptr<const void> object) {
  stream->origin->kept.push_back(std::move(object));
}
void set_counting(bool on) { counts_only = on; }
WorkCounts submitted_works() { return submitted; }
WorkCounts recorded_works() { return newest_recording; }
int64_t replayed_works() { return replayed; }
void set_fork_order(ForkOrder order) { fork_order = order; }
int64_t branched_replays() { return branched; }
int64_t device_bytes() { return allocated; }
void set_device_limit(int64_t bytes) { limit = bytes; }
void set_device_count(int count) {
  device_count = count;
  runs_late = count > 1;
}
void stall_device(int device, int64_t works) {
  const std::scoped_lock lock(stall.mutex);
  stall.device = device;
  stall.works = works;
}
void release_device() {
  const std::scoped_lock lock(stall.mutex);
  stall.device = -1;
  stall.stalled = false;
  stall.released.notify_all();
}
void set_device_model(const char* name) { device_model = name; }
void set_algorithm_cost(size_t index, double ms) { algorithm_costs[index] = ms; }
void set_broken_algorithm(int index) { broken_algorithm = index; }
void set_refused_algorithm(int index) { refused_algorithm = index; }
void set_nan_loser(int index) { nan_loser = index; }
bool loses_nan(int64_t index) { return index == nan_loser; }
int64_t restored_algorithms() { return restored; }
bool is_algorithm_broken(int64_t index) { return index == broken_algorithm; }
bool is_algorithm_refused(int64_t index) { return index == refused_algorithm; }
void count_restored_algorithm() { ++restored; }
void spend_algorithm_cost(size_t index) { spend(algorithm_costs[index]); }
void set_branches_cost(double ms) { branches_cost = ms; }
std::string last_refusal() { return refusal; }
void note_refusal(const std::string& why) { refusal = why; }
std::string wrong_memory(const std::string& name, const void* data, int64_t bytes,
                         int64_t alignment) {
  if (data == nullptr) return "The " + name + " pointer is NULL";
  const auto over = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment);
  if (over != 0) {
    return "The " + name + " pointer must be aligned to at least a multiple of " +
           std::to_string(alignment) + " bytes, got misalignment of " + std::to_string(over) +
           " byte(s)";
  }
  const int64_t there = device_bytes_at(data);
  if (there < bytes) {
    return "The " + name + " takes " + std::to_string(bytes) + " bytes, and " +
           std::to_string(there) + " bytes of device memory are there";
  }
  return "";
}
void set_fault_after(int64_t works, int error) {
  context_error = error;
  works_before_fault = works;
  last_error = cudaSuccess;  // clears the error of an earlier context
}
bool is_context_broken() { return is_lost(); }
void leave_error(int error) { last_error = static_cast<cudaError_t>(error); }
void set_devices_busy(bool busy) { devices_busy = busy; }
void set_start_fault(int error) { start_error = error; }
void forget_contexts() {
  const std::scoped_lock lock(mutex);
  contexts.clear();
}
unsigned context_flags(int device) {
  const std::scoped_lock lock(mutex);
  return contexts.at(device);
}
int64_t polling_host_waits() {
  const std::scoped_lock lock(mutex);
  return polling_waits;
}
void set_has_code(bool has) { has_code = has; }
void set_driver_cuda(int version) { driver_cuda = version; }
void set_device_memory(int64_t bytes) { device_memory = bytes; }
void set_device_capability(int major, int minor) {
  capability = 10 * major + minor;
  // Source: as in kernels/cuda/emulator.cc.
  const int kib = major == 7                                  ? 64
                  : major == 12 || (major == 8 && minor >= 6) ? 99
                  : major == 8                                ? 163
                                                              : 227;
  kernels::cuda::emulator::set_raised_max(kib << 10);
}
bool has_bf16_and_tf32() { return capability >= 80; }
int64_t uploaded_recordings() { return uploaded; }
int device_of(CUstream_st* stream) { return stream->device; }

}  // namespace trainyard::testing

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorSystemNotReady:
      return "system not yet initialized";
    case cudaErrorSystemDriverMismatch:
      return "system has unsupported display driver / cuda driver combination";
    case cudaErrorUnknown:
      return "unknown error";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    default:
      return "an error";
  }
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t e = fault_at_start(); e != cudaSuccess) return fail(e);
  if (driver_cuda < CUDART_VERSION) return fail(cudaErrorInsufficientDriver);
  *count = visible_devices();
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_cuda;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, device_model);
  properties->major = capability / 10;
  properties->minor = capability % 10;
  properties->multiProcessorCount = 2;
  properties->totalGlobalMem = static_cast<size_t>(device_memory);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrClockRate:  // kHz
    case cudaDevAttrMemoryClockRate:
      *value = 1'000'000;
      return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:  // bits
      *value = 64;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = capability / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = capability % 10;
      return cudaSuccess;
    default:
      return fail(cudaErrorInvalidValue);
  }
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  return has_code ? cudaSuccess : fail(cudaErrorNoKernelImageForDevice);
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
      !trainyard::kernels::cuda::emulator::raise_shared_limit(kernel, value)) {
    return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= visible_devices()) return fail(cudaErrorInvalidDevice);
  // Without cudaInitDevice, the context gets the default flags.
  if (const cudaError_t e = need_context(device, cudaDeviceScheduleAuto); e != cudaSuccess) {
    return e;
  }
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  if (device < 0 || device >= visible_devices()) return fail(cudaErrorInvalidDevice);
  if (flags != cudaInitDeviceFlagsAreValid) return fail(cudaErrorInvalidValue);
  return need_context(device, device_flags);
}

cudaError_t cudaMalloc(void** memory, size_t size) {
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  const int64_t free = counts_only ? limit : device_memory * visible_devices() - allocated;
  if (static_cast<int64_t>(size) > std::min(limit, free)) return fail(cudaErrorMemoryAllocation);
  *memory = nullptr;
  if (size == 0) return cudaSuccess;
  if (counts_only) {
    *memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*memory == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  } else {
    const int64_t bytes = static_cast<int64_t>(size) + kAddressAlignment;
    void* const base =
        std::aligned_alloc(2 * kAddressAlignment,
                           static_cast<size_t>(trainyard::round_up(bytes, 2 * kAddressAlignment)));
    if (base == nullptr) return fail(cudaErrorMemoryAllocation);
    *memory = static_cast<std::byte*>(base) + kAddressAlignment;
    std::memset(*memory, 0xFF, size);  // NaN, since a GPU's memory is not initialised either
  }
  const std::scoped_lock lock(mutex);
  allocations[*memory] = {static_cast<int64_t>(size), counts_only};
  allocated += static_cast<int64_t>(size);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t e = may_not_record(); e != cudaSuccess) return e;
  const std::scoped_lock lock(mutex);
  const auto it = allocations.find(memory);
  if (it == allocations.end()) return fail(cudaErrorInvalidValue);
  allocated -= it->second.bytes;
  if (it->second.is_address_alone) {
    munmap(memory, static_cast<size_t>(it->second.bytes));
  } else {
    std::free(static_cast<std::byte*>(memory) - kAddressAlignment);
  }
  allocations.erase(it);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t size) {
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  *memory = std::malloc(size);
  return *memory == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t e = may_not_record(); e != cudaSuccess) return e;
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (size > 0 && (to == nullptr || from == nullptr)) return fail(cudaErrorInvalidValue);
  if ((kind != cudaMemcpyDeviceToHost && !is_device_range(to, size)) ||
      (kind != cudaMemcpyHostToDevice && !is_device_range(from, size))) {
    return fail(cudaErrorInvalidValue);
  }
  const auto *begin = static_cast<const std::byte*>(from), *target = static_cast<std::byte*>(to);
  if (kind == cudaMemcpyDeviceToDevice && begin < target + size && target < begin + size) {
    return fail(cudaErrorInvalidValue);  // CUDA does not define what a copy onto itself gives
  }
  if (computes_wrongly && kind == cudaMemcpyDeviceToHost && size >= sizeof(float)) {
    submit(stream, {WorkKind::kCopy, [=] {
                      std::memcpy(to, from, size);
                      float value = 0;
                      std::memcpy(&value, to, sizeof value);
                      value += 1;
                      std::memcpy(to, &value, sizeof value);
                    }});
    return cudaSuccess;
  }
  submit(stream, {WorkKind::kCopy, [=] { std::memcpy(to, from, size); }});
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t size, cudaStream_t stream) {
  if (!is_device_range(memory, size)) return fail(cudaErrorInvalidValue);
  submit(stream, {WorkKind::kSet, [=] { std::memset(memory, value, size); }});
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return fail(cudaErrorInvalidValue);
  *stream = new CUstream_st;
  (*stream)->device = current_device;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  // Finishes the queued works. The object stays until the process ends, since other streams may
  // still wait for it.
  static auto& gone = *new std::vector<std::unique_ptr<CUstream_st>>;
  drain(*stream, stream->submitted);
  const std::scoped_lock lock(mutex);
  gone.emplace_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  note_wait(has_sleeping_context(stream->device));
  drain(*stream, stream->submitted);
  return must_not_record();
}
// The backend queries only the state of the context, by the legacy stream, which has no work.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream != cudaStreamLegacy) std::abort();
  return is_lost() ? fail(lost()) : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (is_lost()) return fail(lost());
  CUstream_st* const origin = event->origin;
  if (origin != nullptr && origin->origin == origin) {  // the event's recording includes the stream
    if (stream->origin == nullptr) {
      stream->origin = origin;
      origin->members.push_back(stream);
    }
    if (stream == origin) event->stream->joined = std::max(event->stream->joined, event->works);
    add_to_recording({Recorded::kWait, stream, {}, event});
    return cudaSuccess;
  }
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  if (origin != nullptr) return fail(cudaErrorInvalidValue);  // the event's recording has ended
  wait_for(*stream, *event);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  (*event)->sleeps = (flags & cudaEventBlockingSync) != 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->origin != nullptr) {
    event->origin = stream->origin;
    event->stream = stream;
    event->works = stream->works;
    add_to_recording({Recorded::kRecord, stream, {}, event});
    return cudaSuccess;
  }
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  event->origin = nullptr;
  record(*event, *stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  const bool is_behind = event->stream == nullptr || event->stream->done >= event->position;
  return is_behind ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->timed || !to->timed || !from->recorded || !to->recorded) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *ms = static_cast<float>(*to->ms - *from->ms);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  note_wait(event->sleeps);
  if (event->stream != nullptr) drain(*event->stream, event->position);
  return must_not_record();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (recording_stream != nullptr) return fail(cudaErrorIllegalState);
  stream->origin = stream;
  stream->broken = false;
  stream->recorded.clear();
  stream->nodes.clear();
  stream->ends.clear();
  stream->has_branches = false;
  stream->members = {stream};
  recording_stream = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (recording_stream != stream) return fail(cudaErrorIllegalState);
  recording_stream = nullptr;
  Kept kept = std::exchange(stream->kept, {});
  bool unjoined = false;
  for (CUstream_st* member : stream->members) {
    unjoined |= member != stream && member->joined < member->works;
    member->works = member->joined = 0;
    member->ends.clear();
    member->origin = nullptr;
  }
  if (stream->broken) return fail(cudaErrorStreamCaptureInvalidated);
  if (unjoined) return fail(cudaErrorStreamCaptureUnjoined);
  newest_recording = {};
  for (const Recorded& item : stream->recorded) {
    if (item.kind == Recorded::kWork) {
      count(newest_recording, *item.work.kind);
    } else if (stream->has_branches) {
      std::abort();  // as in cudaStreamUpdateCaptureDependencies
    }
  }
  *graph = new CUgraph_st{std::move(stream->recorded), std::move(kept), stream->has_branches};
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  *status = stream->origin == nullptr ? cudaStreamCaptureStatusNone
            : stream->origin->broken  ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  static thread_local std::vector<cudaGraphEdgeData> data;
  data.assign(stream->ends.size(), {});
  if (dependencies != nullptr) *dependencies = stream->ends.data();
  if (edges != nullptr) *edges = data.data();
  if (count != nullptr) *count = stream->ends.size();
  return cudaSuccess;
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData*, size_t count,
                                                unsigned flags) {
  CUstream_st* const origin = stream->origin;
  if (origin == nullptr) return fail(cudaErrorIllegalState);
  // The fake runs the branches of a recording on one stream. The backend needs no more.
  if (stream != origin || origin->members.size() > 1) std::abort();
  if (flags != cudaStreamSetCaptureDependencies) return fail(cudaErrorInvalidValue);
  Ends ends(nodes, nodes + count);
  for (size_t i = 0; i < count; ++i) {
    const bool is_known = std::ranges::any_of(
        origin->nodes, [&](const CUgraphNode_st& node) { return &node == ends[i]; });
    const bool is_again = std::ranges::count(ends, ends[i]) > 1;
    if (!is_known || is_again) return fail(cudaErrorInvalidValue);
  }
  stream->ends = std::move(ends);
  origin->has_branches = true;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->recorded, graph->kept, graph->has_branches};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  if (exec->has_branches) {
    constexpr std::array kTurns = {ForkOrder::kLatest, ForkOrder::kSubmitted, ForkOrder::kRandom};
    const ForkOrder order = fork_order == ForkOrder::kByTurns
                                ? kTurns[static_cast<size_t>(branched) % kTurns.size()]
                                : fork_order;
    for (const size_t k : order_of(exec->recorded, order)) {
      ++replayed;
      submit(exec->recorded[k].stream, exec->recorded[k].work);
    }
    ++branched;
    if (branches_cost != 0) {
      enqueue(*exec->recorded.front().stream, {std::nullopt, [] { spend(branches_cost); }});
    }
    return is_lost() ? lost() : cudaSuccess;
  }
  for (const Recorded& item : exec->recorded) {
    if (item.kind == Recorded::kRecord) {
      record(*item.event, *item.stream);
    } else if (item.kind == Recorded::kWait) {
      wait_for(*item.stream, *item.event);
    } else {
      ++replayed;
      submit(item.stream, item.work);
    }
  }
  return is_lost() ? lost() : cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  ++uploaded;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

}  // extern "C"
