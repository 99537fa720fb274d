// The functions of the CUDA runtime that the backend calls. See fake_cuda.h.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator.h"
#include "tests/cuda/fake_cuda.h"

using trainyard::testing::WorkCounts;
using trainyard::testing::WorkKind;

struct Work {
  WorkKind kind;
  std::function<void()> run;
};

struct CUstream_st {
  bool recording = false;
  bool broken = false;  // something was asked for that cannot be recorded
  std::vector<Work> works;
};
struct CUevent_st {
  bool timed = false;
  bool recorded = false;
  double ms = 0;
};
struct CUgraph_st {
  std::vector<Work> works;
};
struct CUgraphExec_st {
  std::vector<Work> works;
};

namespace {

struct Allocation {
  int64_t bytes;
  bool is_address_alone;
};
std::map<void*, Allocation> allocations;
bool counts_only = false;
WorkCounts submitted, newest_recording;
int64_t allocated = 0, limit = int64_t{1} << 34, replayed = 0;
CUstream_st* recording_stream = nullptr;
cudaError_t last_error = cudaSuccess;

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

// TRAINYARD_FAKE_CUDA_FAULT, for tests of a whole daemon: "after=N" is an illegal memory access in
// the N-th work, which every call tells from then on, as a GPU does; "wrong" makes copies to the
// host add to a number.
int64_t works_before_fault = [] {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_FAULT");
  return text != nullptr && std::strncmp(text, "after=", 6) == 0 ? std::atoll(text + 6) : -1;
}();
const bool computes_wrongly = [] {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_FAULT");
  return text != nullptr && std::strcmp(text, "wrong") == 0;
}();
bool is_lost() { return works_before_fault == 0; }

/// What may not happen while a stream records.
cudaError_t must_not_record() {
  if (is_lost()) return fail(cudaErrorIllegalAddress);
  if (recording_stream == nullptr) return cudaSuccess;
  recording_stream->broken = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

/// Launches of the emulator come through here, as all else that a stream does.
const bool installed = [] {
  trainyard::kernels::cuda::emulator::submit = [](CUstream_st* stream, std::function<void()> run) {
    trainyard::testing::submit_to_stream(stream, WorkKind::kKernel, std::move(run));
  };
  return true;
}();

void count(WorkCounts& counts, WorkKind kind) { ++counts.by_kind[static_cast<size_t>(kind)]; }

void submit(CUstream_st* stream, Work work) {
  if (stream == nullptr) std::abort();  // the default stream is not used
  if (stream->recording) {
    stream->works.push_back(std::move(work));
    return;
  }
  count(submitted, work.kind);
  if (works_before_fault > 0) --works_before_fault;
  if (!is_lost() && !counts_only) work.run();
}

double now_ms() {
  if (counts_only) return static_cast<double>(submitted.all());
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

}  // namespace

namespace trainyard::testing {

void submit_to_stream(CUstream_st* stream, WorkKind kind, std::function<void()> work) {
  submit(stream, {kind, std::move(work)});
}
void set_counting(bool on) { counts_only = on; }
WorkCounts submitted_works() { return submitted; }
WorkCounts recorded_works() { return newest_recording; }
int64_t replayed_works() { return replayed; }
int64_t device_bytes() { return allocated; }
void set_device_limit(int64_t bytes) { limit = bytes; }
void set_fault_after(int64_t works) { works_before_fault = works; }

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
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "an error";
  }
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return is_lost() ? cudaErrorIllegalAddress : last_error; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  properties->major = 9;
  properties->multiProcessorCount = 2;
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
    default:
      return fail(cudaErrorInvalidValue);
  }
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaMalloc(void** memory, size_t size) {
  if (const cudaError_t e = must_not_record(); e != cudaSuccess) return e;
  if (static_cast<int64_t>(size) > limit) return fail(cudaErrorMemoryAllocation);
  const size_t padded = (size + 255) / 256 * 256;
  if (counts_only) {
    *memory = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*memory == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  } else {
    *memory = std::aligned_alloc(256, padded);
    if (*memory == nullptr) return fail(cudaErrorMemoryAllocation);
    std::memset(*memory, 0xFF, size);  // a GPU's memory holds anything: NaN shows
  }
  allocations[*memory] = {static_cast<int64_t>(size), counts_only};
  allocated += static_cast<int64_t>(size);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const auto it = allocations.find(memory);
  if (it == allocations.end()) return fail(cudaErrorInvalidValue);
  allocated -= it->second.bytes;
  if (it->second.is_address_alone) {
    munmap(memory, static_cast<size_t>(it->second.bytes));
  } else {
    std::free(memory);
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
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
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
  submit(stream, {WorkKind::kSet, [=] { std::memset(memory, value, size); }});
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return fail(cudaErrorInvalidValue);
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return must_not_record(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return must_not_record(); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->recorded = true;
  event->ms = now_ms();
  return must_not_record();
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->timed || !to->timed || !from->recorded || !to->recorded) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *ms = static_cast<float>(to->ms - from->ms);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return must_not_record(); }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (recording_stream != nullptr) return fail(cudaErrorIllegalState);
  stream->recording = true;
  stream->broken = false;
  stream->works.clear();
  recording_stream = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (recording_stream != stream) return fail(cudaErrorIllegalState);
  recording_stream = nullptr;
  stream->recording = false;
  if (stream->broken) return fail(cudaErrorStreamCaptureInvalidated);
  newest_recording = {};
  for (const Work& work : stream->works) count(newest_recording, work.kind);
  *graph = new CUgraph_st{std::move(stream->works)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->works};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const Work& work : exec->works) {
    ++replayed;
    submit(stream, work);
  }
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
