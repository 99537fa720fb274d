// src/runtime/host/thread_communicator.h: ranks that are threads of this process.
//
// A rank that comes to an exchange waits for all others; then each sums its share of the elements
// over all ranks, in the order of the ranks, and writes the mean into everybody's memory, or, where
// gradients are scattered, its shard's into its own. Of rows each takes what it needs of the
// others'.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/runtime/host/host_communicator.h"

namespace trainyard {

class ThreadCommunicator final : public HostCommunicator {
 public:
  /// Connected communicators, by rank.
  static std::vector<std::unique_ptr<ThreadCommunicator>> make(size_t ranks);

  void run(Exchange exchange, std::span<const Part> parts) override;
  void abort() noexcept override { group_->meeting.abort(); }

 private:
  struct Group {
    explicit Group(size_t ranks) : meeting(ranks), parts(ranks) {}
    Meeting meeting;
    // Of the exchange under way, by rank: each rank writes its own before all meet and reads the
    // others' until they meet again.
    std::vector<std::span<const Part>> parts;
  };
  ThreadCommunicator(std::shared_ptr<Group> group, size_t rank)
      : group_(std::move(group)), rank_(rank) {}
  // Of part `index`:
  template <typename T>
  T* data_of(size_t rank, size_t index) const {
    return static_cast<T*>(group_->parts[rank][index].data);
  }
  /// Calls take(i, mean) for elements i of [first, end).
  template <typename T, typename F>
  void reduce(size_t index, int64_t first, int64_t end, const F& take) const;
  /// This rank's part of the work.
  template <typename T>
  void take_part(Exchange exchange, size_t index) const;
  void gather(size_t index) const;
  void gather_rows(size_t index) const;
  template <typename T>
  void scatter_rows(size_t index) const;

  const std::shared_ptr<Group> group_;
  const size_t rank_;
};

}  // namespace trainyard
