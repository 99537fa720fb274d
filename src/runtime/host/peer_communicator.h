// src/runtime/host/peer_communicator.h: ranks of several processes (src/runtime/peers.h), one or
// more threads in each.
//
// A rank owns a share of every tensor's elements, as among threads. All processes send the others
// what these own; the owner sums over all ranks in their order; and the sums go to all. So the bits
// are those of as many threads, and each process sends what a ring would send. Large tensors
// travel in rounds, so that what has arrived and is not summed yet has a bound. Rows that are
// gathered go to all, into their places.
//
// The threads of a process meet before and after; the first of them does the work.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/runtime/host/host_communicator.h"
#include "src/runtime/peers.h"

namespace trainyard {

/// Bytes of all tensors that one round exchanges, about. A process that has one rank holds so many
/// of the others at most.
inline constexpr int64_t kRoundBytes = int64_t{8} << 20;

class PeerCommunicator final : public HostCommunicator {
 public:
  /// Of this process's ranks, by rank.
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
  const size_t rank_;  // among this process's
};

}  // namespace trainyard
