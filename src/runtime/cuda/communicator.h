// src/runtime/cuda/communicator.h: one GPU's end of NCCL.
//
//   main stream   ... gradients ── reached ─┬──── backward goes on ────┬─ updates ...
//   its own                                 └─ ncclAllReduce ── ended ─┘
//
// or, where each rank updates its shard (src/ops/shards.h), the same with ncclReduceScatter, and
// ncclAllGather behind the updates. Where a rank has no more than its shard, that is copied into
// the whole tensor, in which ncclAllGather then works, before the whole one is read. Rows
// (src/ops/row_exchange.h) are gathered and scattered by the same two; the main stream waits at
// once. Where a tensor's shards are not all whole
// (kernels/shard.h), those are a ncclReduce or a ncclBroadcast for each.
//
// Events fork and join, so that a recorded step has the same shape. `reached` and `ended` are
// numbers that the GPU counts up in the host's memory (kernels/cuda/count_up.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/shard.h"
#include "src/base/mutex.h"
#include "src/runtime/backend.h"
#include "src/runtime/common/exchange_kernel.h"
#include "src/runtime/communicator.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/nccl.h"

namespace trainyard::cuda {

class NcclCommunicator final : public Communicator {
 public:
  /// Connects the devices, in the order of their ranks. Throws CudaError.
  static std::vector<std::unique_ptr<NcclCommunicator>> make(
      const Nccl& nccl, std::span<const Device* const> devices);
  /// Connects them with those of other processes (nccl_init.h). `network`: what NCCL goes through.
  static Result<std::vector<std::unique_ptr<NcclCommunicator>>> join(
      const Nccl& nccl, std::span<const Device* const> devices, const ProcessGroup& group,
      const std::string& network);
  ~NcclCommunicator() override;

  /// Before start() and done() of a bucket.
  void prepare(int64_t bucket);
  using Part = ExchangePart;
  /// Begins an exchange behind what the device's stream has to do; and lets the stream wait for it.
  void start(int64_t bucket, Exchange exchange, std::span<const Part> parts);
  void done(int64_t bucket);
  /// Behind done() of rows that were scattered, which are their mean until then.
  void scale_rows(const Part& part) const;

  int64_t reached() const override { return read(0); }
  int64_t ended() const override { return read(1); }
  void check() const override;
  void abort() noexcept override;
  Peers* peers() const override { return peers_.get(); }
  std::string about() const override { return about_; }

 private:
  /// Of rank `rank` of `ranks`. With `peers`, the communicator does not block.
  NcclCommunicator(const Nccl& nccl, ncclComm_t comm, const Device& device, int rank, int ranks,
                   std::shared_ptr<Peers> peers = {}, std::string about = {});
  /// All that the exchange needs of NCCL is in the stream when it returns.
  void submit(Exchange exchange, std::span<const Part> parts);
  void call(Exchange exchange, std::span<const Part> parts) const;
  bool is_submitted();
  void check_not_aborted() const;
  void all_reduce(const Part& part) const;
  void reduce_scatter(const Part& part) const;
  void all_gather(const Part& part) const;
  void place_own_rows(const Part& part) const;
  void gather_rows(const Part& part) const;
  void scatter_rows(const Part& part) const;
  /// Behind this rank's shard, where it is shorter than its memory.
  void clear_tail(const Part& part) const;
  kernels::ShardRange shard_of(const Part& part, int rank) const {
    return kernels::shard_range(part.count, rank, ranks_);
  }
  int64_t read(size_t i) const;
  void count_up(size_t i, cudaStream_t stream) const;
  void check(ncclResult_t status, const char* what) const;

  const Nccl& nccl_;
  const ncclComm_t comm_;
  const Device& device_;
  const int rank_, ranks_;
  const std::shared_ptr<Peers> peers_;  // of a job of several processes
  const std::string about_;
  // An abort frees the communicator: it waits while somebody looks at it, who does not stay long.
  mutable Mutex mutex_;
  std::atomic<bool> aborted_ = false;
  Stream stream_;
  Event gradients_;                // are there
  std::map<int64_t, Event> ends_;  // by bucket
  DeviceMemory counters_;          // int64: reached, ended
  PinnedMemory seen_;              // the same, as the host reads them
};

/// The kernel of an exchange's op. Without a communicator it can be planned with and not run.
std::unique_ptr<Kernel> make_exchange(const Device& device, NcclCommunicator* communicator,
                                      const Graph& graph, const Node& node);

}  // namespace trainyard::cuda
