// src/runtime/host/thread_communicator.h: exchanges between ranks that are threads of one process.
//
// A rank that reaches an exchange waits for all others. Then each rank sums its share of the
// elements over all ranks, in rank order, and writes the mean to the memory of all ranks; for
// reduce-scatter it writes its own shard only. In exchanges of rows, each rank reads the rows that
// it needs from the others.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/runtime/host/host_communicator.h"

namespace trainyard {

class ThreadCommunicator final : public HostCommunicator {
 public:
  /// Returns connected communicators, by rank.
  static std::vector<std::unique_ptr<ThreadCommunicator>> make(size_t ranks);

  void run(Exchange exchange, std::span<const Part> parts) override;
  void abort() noexcept override { group_->barrier.abort(); }

 private:
  struct Group {
    explicit Group(size_t ranks) : barrier(ranks), parts(ranks) {}
    Barrier barrier;
    // The parts of the current exchange, by rank. Each rank writes its own entry before the first
    // barrier, and reads the others' entries until the second.
    std::vector<std::span<const Part>> parts;
  };
  ThreadCommunicator(std::shared_ptr<Group> group, size_t rank)
      : group_(std::move(group)), rank_(rank) {}
  // The following functions work on part `index` of the exchange.
  template <typename T>
  T* data_of(size_t rank, size_t index) const {
    return static_cast<T*>(group_->parts[rank][index].data);
  }
  /// Calls take(i, mean) for the elements i in [first, end).
  template <typename T, typename F>
  void reduce(size_t index, int64_t first, int64_t end, const F& take) const;
  /// Does this rank's share of the work.
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
