#include "src/runtime/cuda/communicator.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/cuda/count_up.h"
#include "src/base/check.h"
#include "src/runtime/common/kernel_table.h"

namespace trainyard::cuda {
namespace {

constexpr size_t kCounters = 2;

[[noreturn]] void fail(const Nccl& nccl, ncclComm_t comm, ncclResult_t status,
                       const std::string& what) {
  std::string words = nccl.get_error_string(status);
  if (const char* detail = nccl.get_last_error(comm); detail != nullptr && *detail != '\0') {
    words += ": " + std::string(detail);
  }
  throw CudaError(what + ": " + words + " (NCCL error " + std::to_string(status) + ")", status);
}

}  // namespace

std::vector<std::unique_ptr<NcclCommunicator>> NcclCommunicator::make(
    const Nccl& nccl, std::span<const Device* const> devices) {
  std::vector<int> ordinals;
  for (const Device* device : devices) ordinals.push_back(device->ordinal());
  std::vector<ncclComm_t> comms(devices.size());
  const ncclResult_t status =
      nccl.comm_init_all(comms.data(), static_cast<int>(comms.size()), ordinals.data());
  if (status != ncclSuccess) {
    fail(nccl, nullptr, status, "connecting " + std::to_string(comms.size()) + " GPUs");
  }
  std::vector<std::unique_ptr<NcclCommunicator>> all;
  for (size_t r = 0; r < comms.size(); ++r) {
    all.emplace_back(new NcclCommunicator(nccl, comms[r], *devices[r]));
  }
  return all;
}

NcclCommunicator::NcclCommunicator(const Nccl& nccl, ncclComm_t comm, const Device& device)
    : nccl_(nccl), comm_(comm), device_(device) {
  device_.make_current();
  stream_ = Device::make_stream();
  gradients_ = Device::make_event();
  const std::array<int64_t, kCounters> zero{};
  counters_ = device_.upload(std::as_bytes(std::span(zero)));
  seen_ = make_pinned(sizeof zero);
  std::memcpy(seen_.get(), zero.data(), sizeof zero);
}

NcclCommunicator::~NcclCommunicator() {
  if (!aborted_) (void)nccl_.comm_destroy(comm_);
}

void NcclCommunicator::prepare(int64_t bucket) {
  if (!ends_.contains(bucket)) ends_[bucket] = Device::make_event();
}

void NcclCommunicator::check(ncclResult_t status, const char* what) const {
  if (status != ncclSuccess) {
    fail(nccl_, comm_, status, what + (" on GPU " + std::to_string(device_.ordinal())));
  }
}

int64_t NcclCommunicator::read(size_t i) const {
  return std::atomic_ref(static_cast<int64_t*>(seen_.get())[i]).load();
}

void NcclCommunicator::count_up(size_t i, cudaStream_t stream) const {
  kernels::cuda::count_up(static_cast<int64_t*>(counters_.get()) + i,
                          static_cast<int64_t*>(seen_.get()) + i, stream);
}

void NcclCommunicator::start(int64_t bucket, std::span<const Part> parts) {
  if (aborted_) throw ExchangeAborted("another device has stopped");
  count_up(0, device_.stream());
  cuda::check(cudaEventRecord(gradients_.get(), device_.stream()), "cudaEventRecord");
  cuda::check(cudaStreamWaitEvent(stream_.get(), gradients_.get(), 0), "cudaStreamWaitEvent");
  check(nccl_.group_start(), "ncclGroupStart");
  for (const Part& part : parts) {
    check(nccl_.all_reduce(part.data, part.data, static_cast<size_t>(part.count),
                           part.dtype == DType::kF64 ? ncclFloat64 : ncclFloat32, ncclAvg, comm_,
                           stream_.get()),
          "ncclAllReduce");
  }
  check(nccl_.group_end(), "ncclGroupEnd");
  count_up(1, stream_.get());
  cuda::check(cudaEventRecord(ends_.at(bucket).get(), stream_.get()), "cudaEventRecord");
}

void NcclCommunicator::done(int64_t bucket) {
  cuda::check(cudaStreamWaitEvent(device_.stream(), ends_.at(bucket).get(), 0),
              "cudaStreamWaitEvent");
}

void NcclCommunicator::check() const {
  if (aborted_) return;
  ncclResult_t status = ncclSuccess;
  check(nccl_.comm_get_async_error(comm_, &status), "ncclCommGetAsyncError");
  if (status != ncclInProgress) check(status, "exchanging gradients");
}

void NcclCommunicator::abort() noexcept {
  if (!aborted_.exchange(true)) (void)nccl_.comm_abort(comm_);
}

std::unique_ptr<Kernel> make_exchange(const Device& device, NcclCommunicator* communicator,
                                      const Graph& graph, const Node& node) {
  const int64_t bucket = node.attributes.get_int("bucket", 0);
  const bool starts = node.op->type() == "AllReduceStart";
  if (communicator != nullptr) communicator->prepare(bucket);
  return make_kernel([=, parts = exchange_parts(graph, node),
                      stream = device.stream()](const KernelArgs& a) mutable {
    TRAINYARD_CHECK(communicator != nullptr, "the backend is connected to no other");
    if (!starts) communicator->done(bucket);
    bind_parts(parts, starts, a, [&](void* to, const void* from, size_t bytes) {
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
            "copying a gradient");
    });
    if (starts) communicator->start(bucket, parts);
  });
}

}  // namespace trainyard::cuda
