// src/runtime/host/peer_communicator.h: exchanges between ranks of several processes
// (src/runtime/peers.h), with one or more threads in each.
//
// A rank owns a share of every tensor's elements, as among threads. Each process sends the elements
// that others own to their owners; an owner sums them over all ranks in rank order and sends the
// sums to all. So the results are bit-identical to those of as many threads, and each process sends
// as much as in a ring all-reduce. Large tensors are exchanged in rounds, to bound the memory for
// received data. Gathered rows are sent to all processes, directly to their final positions.
//
// The threads of a process wait at a barrier before and after; the first thread does the work.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/runtime/host/host_communicator.h"
#include "src/runtime/peers.h"

namespace trainyard {

/// Approximate bytes of all tensors in one round. A process with one rank buffers at most this much
/// of the other ranks' data.
inline constexpr int64_t kRoundBytes = int64_t{8} << 20;

class PeerCommunicator final : public HostCommunicator {
 public:
  /// Returns the communicators of this process's ranks, by local rank.
  static std::vector<std::unique_ptr<PeerCommunicator>> make(size_t ranks,
                                                             std::shared_ptr<Peers> peers);

  void plan(Exchange exchange, std::span<const Part> parts) override;
  void run(Exchange exchange, std::span<const Part> parts) override;
  void abort() noexcept override;
  Peers* peers() const override;
  bool sends_by_peers() const override { return true; }

 private:
  class Group;
  PeerCommunicator(std::shared_ptr<Group> group, size_t rank)
      : group_(std::move(group)), rank_(rank) {}

  const std::shared_ptr<Group> group_;
  const size_t rank_;  // within this process
};

}  // namespace trainyard
