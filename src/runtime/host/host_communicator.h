// src/runtime/host/host_communicator.h: exchanges between ranks that compute on hosts.
//
// The ranks are threads of this process (thread_communicator.h) or of several
// (peer_communicator.h). Means are summed over all ranks in rank order, so the result depends only
// on the number of ranks, and is the same on all of them. Gathered rows are copied unchanged, apart
// from the factor; rows are scattered only among ranks of one process.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>

#include "src/base/mutex.h"
#include "src/runtime/backend.h"
#include "src/runtime/common/exchange_kernel.h"
#include "src/runtime/communicator.h"

namespace trainyard {

class HostCommunicator : public Communicator {
 public:
  using Part = ExchangePart;

  /// Announces an exchange with which run() will be called; allocates the memory that it needs.
  virtual void plan(Exchange /*exchange*/, std::span<const Part> /*parts*/) {}
  /// Performs an exchange. Every rank must pass parts of the same sizes. Throws ExchangeAborted.
  virtual void run(Exchange exchange, std::span<const Part> parts) = 0;

  int64_t reached() const override { return reached_; }
  int64_t ended() const override { return ended_; }

 protected:
  std::atomic<int64_t> reached_ = 0, ended_ = 0;
};

/// A reusable barrier for the threads of one process.
class Barrier {
 public:
  explicit Barrier(size_t ranks) : ranks_(ranks) {}
  /// Waits until every rank has arrived. Throws ExchangeAborted.
  void wait();
  /// Ends all waiting: every waiting rank throws `lost` if it is set, else ExchangeAborted.
  void abort(std::optional<RankLost> lost = std::nullopt) noexcept;

 private:
  const size_t ranks_;
  Mutex mutex_;
  CondVar changed_;
  size_t arrived_ TRAINYARD_GUARDED_BY(mutex_) = 0;
  int64_t generation_ TRAINYARD_GUARDED_BY(mutex_) = 0;
  bool aborted_ TRAINYARD_GUARDED_BY(mutex_) = false;
  std::optional<RankLost> lost_ TRAINYARD_GUARDED_BY(mutex_);
};

/// Calls take(i, mean) for each i in [0, count). `mean` is the mean of data[r][i] over `ranks`
/// ranks, summed in rank order.
template <typename T, typename F>
void mean_in_rank_order(const std::array<const T*, kRanksMax>& data, size_t ranks, int64_t count,
                        const F& take) {
  const T share = T(1) / static_cast<T>(ranks);
  for (int64_t i = 0; i < count; ++i) {
    T sum = 0;
    for (size_t r = 0; r < ranks; ++r) sum += data[r][i] * share;
    take(i, sum);
  }
}

/// Multiplies the gathered rows of all ranks by the exchange's factor.
void scale_rows(const ExchangePart& part, int64_t ranks);

/// Returns the kernel of an exchange's op, or nullptr for another op. Without a communicator the
/// kernel can be prepared but not run.
std::unique_ptr<Kernel> make_host_exchange(HostCommunicator* communicator, const Graph& graph,
                                           const Node& node);

}  // namespace trainyard
