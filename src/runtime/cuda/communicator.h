// src/runtime/cuda/communicator.h: one GPU's end of an NCCL connection.
//
//   main stream   ... gradients ── reached ─┬── backward continues ────┬─ updates ...
//   own stream                              └─ ncclAllReduce ── ended ─┘
//
// If each rank updates its shard (src/ops/shards.h), ncclReduceScatter takes the place of
// ncclAllReduce, and ncclAllGather follows the updates. If a rank stores only its shard, the shard
// is first copied into the whole tensor, and ncclAllGather then works in place. Rows
// (src/ops/row_exchange.h) are gathered and scattered with the same two functions; the main stream
// waits for them immediately. If the shards of a tensor have different sizes (kernels/shard.h), one
// ncclReduce or ncclBroadcast per shard is used instead.
//
// Events fork and join the streams, so that the exchange can be part of a recorded step. `reached`
// and `ended` are counters in host memory that the GPU increments (kernels/cuda/count_up.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/shard.h"
#include "src/runtime/backend.h"
#include "src/runtime/common/exchange_kernel.h"
#include "src/runtime/communicator.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/nccl.h"
#include "src/runtime/cuda/nccl_connection.h"

namespace trainyard::cuda {

class NcclCommunicator final : public Communicator {
 public:
  /// Connects the devices, in the order of their ranks. Throws CudaError.
  static std::vector<std::unique_ptr<NcclCommunicator>> make(
      const Nccl& nccl, std::span<const Device* const> devices);
  /// Connects the devices with those of other processes (nccl_init.h). `network` describes the
  /// network that NCCL uses.
  static Result<std::vector<std::unique_ptr<NcclCommunicator>>> join(
      const Nccl& nccl, std::span<const Device* const> devices, const ProcessGroup& group,
      const std::string& network);
  ~NcclCommunicator() override;

  /// Must be called before start() and done() of a bucket.
  void prepare(int64_t bucket);
  using Part = ExchangePart;
  /// start() begins an exchange after the work submitted to the device's stream; done() makes that
  /// stream wait for its end.
  void start(int64_t bucket, Exchange exchange, std::span<const Part> parts);
  void done(int64_t bucket);
  /// Multiplies scattered rows by the factor; called after done(), when they contain the mean.
  void scale_rows(const Part& part) const;

  int64_t reached() const override { return read(0); }
  int64_t ended() const override { return read(1); }
  void check() const override;
  void abort() noexcept override;
  Peers* peers() const override { return peers_.get(); }
  std::string about() const override { return about_; }

 private:
  /// The communicator of rank `rank` of `ranks`. With `peers` its NCCL calls do not block.
  NcclCommunicator(std::unique_ptr<NcclConnection> connection, const Device& device, int rank,
                   int ranks, std::shared_ptr<Peers> peers = {}, std::string about = {});
  /// Submits the exchange; when it returns, all of NCCL's work for it is in the stream.
  void submit(Exchange exchange, std::span<const Part> parts);
  void call(Exchange exchange, std::span<const Part> parts) const;
  bool is_submitted();
  void all_reduce(const Part& part) const;
  void reduce_scatter(const Part& part) const;
  void all_gather(const Part& part) const;
  void place_own_rows(const Part& part) const;
  void gather_rows(const Part& part) const;
  void scatter_rows(const Part& part) const;
  /// Zeroes the padding after this rank's shard.
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
  const std::shared_ptr<Peers> peers_;  // set if the job has several processes
  const std::string about_;
  Stream stream_;
  Event gradients_;                // recorded when the gradients are computed
  std::map<int64_t, Event> ends_;  // ends of exchanges, by bucket
  DeviceMemory counters_;          // on the GPU, int64: reached, ended
  PinnedMemory seen_;              // copy of counters_ that the host reads
  // The last member, because its destructor ends NCCL's use of the others.
  const std::unique_ptr<NcclConnection> connection_;
};

/// Returns the kernel of an exchange's op. Without a communicator it can be prepared but not run.
std::unique_ptr<Kernel> make_exchange(const Device& device, NcclCommunicator* communicator,
                                      const Graph& graph, const Node& node);

}  // namespace trainyard::cuda
