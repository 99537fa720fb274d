#include "src/runtime/cuda/communicator.h"

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/cuda/count_up.h"
#include "kernels/cuda/scale_in_place.h"
#include "src/base/check.h"
#include "src/runtime/common/kernel_table.h"
#include "src/runtime/cuda/nccl_init.h"

namespace trainyard::cuda {
namespace {

constexpr size_t kCounters = 2;
// Interval of checking whether NCCL has submitted a call.
constexpr std::chrono::microseconds kPollPeriod{20};

[[noreturn]] void fail(const Nccl& nccl, ncclComm_t comm, ncclResult_t status,
                       const std::string& what) {
  throw CudaError(what + ": " + describe(nccl, comm, status), status);
}

ncclDataType_t type_of(const ExchangePart& part) {
  if (part.is_half)
    return ncclFloat16;  // moves the bits of either 16-bit format; nothing is summed
  return part.dtype == DType::kF64 ? ncclFloat64 : ncclFloat32;
}
void* element(const ExchangePart& part, int64_t index) {
  return static_cast<std::byte*>(part.data) + index * part.element_bytes();
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
  std::vector<std::unique_ptr<NcclConnection>> connections;
  for (const ncclComm_t comm : comms) {
    connections.push_back(std::make_unique<NcclConnection>(nccl, comm, /*blocks=*/true));
  }
  std::vector<std::unique_ptr<NcclCommunicator>> all;
  for (size_t r = 0; r < comms.size(); ++r) {
    all.emplace_back(new NcclCommunicator(std::move(connections[r]), *devices[r],
                                          static_cast<int>(r), static_cast<int>(comms.size())));
  }
  return all;
}

Result<std::vector<std::unique_ptr<NcclCommunicator>>> NcclCommunicator::join(
    const Nccl& nccl, std::span<const Device* const> devices, const ProcessGroup& group,
    const std::string& network) {
  ASSIGN_OR_RETURN(auto connections, init_among_processes(nccl, devices, group));
  const std::string about = "NCCL " + version_of(nccl) + " through " + network;
  std::vector<std::unique_ptr<NcclCommunicator>> all;
  for (size_t r = 0; r < connections.size(); ++r) {
    const int rank = static_cast<int>(group.first_rank) + static_cast<int>(r);
    all.emplace_back(new NcclCommunicator(std::move(connections[r]), *devices[r], rank,
                                          static_cast<int>(group.ranks), group.peers, about));
  }
  return all;
}

NcclCommunicator::NcclCommunicator(std::unique_ptr<NcclConnection> connection, const Device& device,
                                   int rank, int ranks, std::shared_ptr<Peers> peers,
                                   std::string about)
    : nccl_(connection->nccl()),
      comm_(connection->comm()),
      device_(device),
      rank_(rank),
      ranks_(ranks),
      peers_(std::move(peers)),
      about_(std::move(about)),
      connection_(std::move(connection)) {
  device_.make_current();
  stream_ = Device::make_stream();
  gradients_ = Device::make_event();
  const std::array<int64_t, kCounters> zero{};
  counters_ = device_.upload(std::as_bytes(std::span(zero)));
  seen_ = make_pinned(sizeof zero);
  std::memcpy(seen_.get(), zero.data(), sizeof zero);
}

// Destroying waits for the other ranks, which may have ended if they are in other processes.
NcclCommunicator::~NcclCommunicator() {
  if (peers_ != nullptr) abort();
}

void NcclCommunicator::prepare(int64_t bucket) {
  if (!ends_.contains(bucket)) ends_[bucket] = Device::make_event();
}

void NcclCommunicator::check(ncclResult_t status, const char* what) const {
  if (status != ncclSuccess && !(status == ncclInProgress && peers_ != nullptr)) {
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

void NcclCommunicator::start(int64_t bucket, Exchange exchange, std::span<const Part> parts) {
  connection_->check_not_aborted();
  count_up(0, device_.stream());
  cuda::check(cudaEventRecord(gradients_.get(), device_.stream()), "cudaEventRecord");
  cuda::check(cudaStreamWaitEvent(stream_.get(), gradients_.get(), 0), "cudaStreamWaitEvent");
  for (const Part& part : parts) {
    if (exchange == Exchange::kReduceScatter) clear_tail(part);
    if (exchange == Exchange::kGatherRows) place_own_rows(part);
  }
  submit(exchange, parts);
  count_up(1, stream_.get());
  cuda::check(cudaEventRecord(ends_.at(bucket).get(), stream_.get()), "cudaEventRecord");
}

// Non-blocking calls are submitted by a thread of NCCL, and later work in the stream must not
// overtake them. Blocking calls may wait for other ranks, and an abort wakes them.
void NcclCommunicator::submit(Exchange exchange, std::span<const Part> parts) {
  connection_->use([&] { call(exchange, parts); });
  while (!connection_->blocks() && !is_submitted()) std::this_thread::sleep_for(kPollPeriod);
}

bool NcclCommunicator::is_submitted() {
  ncclResult_t state = ncclSuccess;
  connection_->use([&] {
    check(nccl_.comm_get_async_error(comm_, &state), "ncclCommGetAsyncError");
    check(state, "exchanging gradients");
  });
  return state == ncclSuccess;
}

void NcclCommunicator::call(Exchange exchange, std::span<const Part> parts) const {
  check(nccl_.group_start(), "ncclGroupStart");
  for (const Part& part : parts) {
    switch (exchange) {
      case Exchange::kAllReduce:
        all_reduce(part);
        break;
      case Exchange::kReduceScatter:
        reduce_scatter(part);
        break;
      case Exchange::kAllGather:
        all_gather(part);
        break;
      case Exchange::kGatherRows:
        gather_rows(part);
        break;
      case Exchange::kScatterRows:
        scatter_rows(part);
        break;
    }
  }
  check(nccl_.group_end(), "ncclGroupEnd");
}

void NcclCommunicator::all_reduce(const Part& part) const {
  check(nccl_.all_reduce(part.data, part.data, static_cast<size_t>(part.count), type_of(part),
                         ncclAvg, comm_, stream_.get()),
        "ncclAllReduce");
}

void NcclCommunicator::reduce_scatter(const Part& part) const {
  if (kernels::shards_are_even(part.count, ranks_)) {
    check(nccl_.reduce_scatter(part.data, part.shard,
                               static_cast<size_t>(kernels::shard_elements(part.count, ranks_)),
                               type_of(part), ncclAvg, comm_, stream_.get()),
          "ncclReduceScatter");
    return;
  }
  for (int root = 0; root < ranks_; ++root) {
    const kernels::ShardRange range = shard_of(part, root);
    if (range.count == 0) break;
    check(nccl_.reduce(element(part, range.first), part.shard, static_cast<size_t>(range.count),
                       type_of(part), ncclAvg, root, comm_, stream_.get()),
          "ncclReduce");
  }
}

void NcclCommunicator::clear_tail(const Part& part) const {
  const int64_t count = shard_of(part, rank_).count;
  const int64_t tail = kernels::shard_elements(part.count, ranks_) - count;
  if (tail == 0) return;
  const auto size = static_cast<int64_t>(size_of(part.dtype));
  cuda::check(cudaMemsetAsync(static_cast<std::byte*>(part.shard) + count * size, 0,
                              static_cast<size_t>(tail * size), stream_.get()),
              "cudaMemsetAsync");
}

void NcclCommunicator::all_gather(const Part& part) const {
  if (kernels::shards_are_even(part.count, ranks_)) {
    const kernels::ShardRange mine = shard_of(part, rank_);
    check(nccl_.all_gather(element(part, mine.first), part.data, static_cast<size_t>(mine.count),
                           type_of(part), comm_, stream_.get()),
          "ncclAllGather");
    return;
  }
  for (int root = 0; root < ranks_; ++root) {
    const kernels::ShardRange range = shard_of(part, root);
    if (range.count == 0) break;
    void* const at = element(part, range.first);
    check(nccl_.broadcast(at, at, static_cast<size_t>(range.count), type_of(part), root, comm_,
                          stream_.get()),
          "ncclBroadcast");
  }
}

void NcclCommunicator::place_own_rows(const Part& part) const {
  const size_t bytes = static_cast<size_t>(part.count) * size_of(part.dtype);
  cuda::check(
      cudaMemcpyAsync(static_cast<std::byte*>(part.rows) + bytes * static_cast<size_t>(rank_),
                      part.data, bytes, cudaMemcpyDeviceToDevice, stream_.get()),
      "cudaMemcpyAsync");
  if (part.factor == 1) return;
  TRAINYARD_CHECK(part.dtype == DType::kF32, "rows of another type than F32 are scaled");
  kernels::cuda::scale_in_place(part.count, static_cast<float>(part.factor),
                                static_cast<float*>(part.rows) + part.count * rank_, stream_.get());
}

// Works in place, after place_own_rows(): rows are gathered as words of 4 or 8 bytes.
void NcclCommunicator::gather_rows(const Part& part) const {
  const size_t bytes = static_cast<size_t>(part.count) * size_of(part.dtype);
  const ncclDataType_t word = size_of(part.dtype) == sizeof(double) ? ncclFloat64 : ncclFloat32;
  check(nccl_.all_gather(static_cast<std::byte*>(part.rows) + bytes * static_cast<size_t>(rank_),
                         part.rows, static_cast<size_t>(part.count), word, comm_, stream_.get()),
        "ncclAllGather");
}

void NcclCommunicator::scatter_rows(const Part& part) const {
  check(nccl_.reduce_scatter(part.data, part.rows, static_cast<size_t>(part.count / ranks_),
                             type_of(part), ncclAvg, comm_, stream_.get()),
        "ncclReduceScatter");
}

void NcclCommunicator::scale_rows(const Part& part) const {
  TRAINYARD_CHECK(part.dtype == DType::kF32, "rows of another type than F32 are scattered");
  const auto factor = static_cast<float>(ranks_ * part.factor);
  kernels::cuda::scale_in_place(part.count / ranks_, factor, static_cast<float*>(part.rows),
                                device_.stream());
}

void NcclCommunicator::done(int64_t bucket) {
  cuda::check(cudaStreamWaitEvent(device_.stream(), ends_.at(bucket).get(), 0),
              "cudaStreamWaitEvent");
}

void NcclCommunicator::check() const {
  (void)connection_->use_if_free([this] {
    ncclResult_t status = ncclSuccess;
    check(nccl_.comm_get_async_error(comm_, &status), "ncclCommGetAsyncError");
    if (status != ncclInProgress) check(status, "exchanging gradients");
  });
}

void NcclCommunicator::abort() noexcept { connection_->abort(); }

std::unique_ptr<Kernel> make_exchange(const Device& device, NcclCommunicator* communicator,
                                      const Graph& graph, const Node& node) {
  const std::string_view type = node.op->type();
  const std::vector<int64_t> buckets =
      node.attributes.get_ints("buckets", {node.attributes.get_int("bucket", 0)});
  if (communicator != nullptr) {
    for (const int64_t bucket : buckets) communicator->prepare(bucket);
  }
  const auto copy = [stream = device.stream()](void* to, const void* from, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copying a gradient");
  };
  const char* const alone = "the backend is connected to no other";
  if (starts_exchange(type)) {
    return make_kernel([=, exchange = exchange_of(type), is_whole = exchanges_rows(type),
                        parts = exchange_parts(graph, node)](const KernelArgs& a) mutable {
      TRAINYARD_CHECK(communicator != nullptr, alone);
      bind_parts(parts, exchange, a, copy);
      communicator->start(buckets.front(), exchange, parts);
      if (!is_whole) return;
      communicator->done(buckets.front());
      if (exchange != Exchange::kScatterRows) return;
      for (const ExchangePart& part : parts) communicator->scale_rows(part);
    });
  }
  return make_kernel([=, results = exchange_results(graph, node)](const KernelArgs& a) {
    TRAINYARD_CHECK(communicator != nullptr, alone);
    for (const int64_t bucket : buckets) communicator->done(bucket);
    results.take(a, copy);
  });
}

}  // namespace trainyard::cuda
