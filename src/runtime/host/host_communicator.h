// src/runtime/host/host_communicator.h: ranks that are threads of this process.
//
// A rank that comes to an exchange waits for all others; then each sums its share of the elements
// over all ranks, in the order of the ranks, and writes the mean into everybody's memory, or, where
// gradients are scattered, its shard's into its own. The result depends on the number of ranks
// alone, and is the same of both. Of rows each takes what it needs of the others'.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "src/base/mutex.h"
#include "src/runtime/backend.h"
#include "src/runtime/common/exchange_kernel.h"
#include "src/runtime/communicator.h"

namespace trainyard {

class HostCommunicator final : public Communicator {
 public:
  using Part = ExchangePart;

  /// Connected communicators, by rank.
  static std::vector<std::unique_ptr<HostCommunicator>> make(size_t ranks);

  /// Every rank gives parts of the same sizes. Throws ExchangeAborted.
  void run(Exchange exchange, std::span<const Part> parts);

  int64_t reached() const override { return reached_; }
  int64_t ended() const override { return ended_; }
  void abort() noexcept override;

 private:
  struct Group {
    Mutex mutex;
    CondVar changed;
    size_t arrived TRAINYARD_GUARDED_BY(mutex) = 0;
    int64_t meetings TRAINYARD_GUARDED_BY(mutex) = 0;
    bool aborted TRAINYARD_GUARDED_BY(mutex) = false;
    // Of the exchange under way, by rank: each rank writes its own before all meet and reads the
    // others' until they meet again.
    std::vector<std::span<const Part>> parts;
  };
  HostCommunicator(std::shared_ptr<Group> group, size_t rank)
      : group_(std::move(group)), rank_(rank) {}
  /// Waits until every rank is here.
  void meet();
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
  template <typename T>
  void gather(size_t index) const;
  void gather_rows(size_t index) const;
  template <typename T>
  void scatter_rows(size_t index) const;

  const std::shared_ptr<Group> group_;
  const size_t rank_;
  std::atomic<int64_t> reached_ = 0, ended_ = 0;
};

/// The kernel of an exchange's op, or nullptr for another op. Without a communicator it can be
/// planned with and not run.
std::unique_ptr<Kernel> make_host_exchange(HostCommunicator* communicator, const Graph& graph,
                                           const Node& node);

}  // namespace trainyard
