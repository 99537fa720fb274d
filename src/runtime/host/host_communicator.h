// src/runtime/host/host_communicator.h: ranks that compute on hosts.
//
// Whether they are threads of this process (thread_communicator.h) or of several
// (peer_communicator.h): means are summed over all ranks in their order, so the result depends on
// the number of ranks alone, and is the same of all of them. Rows are gathered as they are; only
// ranks of one process scatter them.
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

  /// An exchange that run() will be called with: memory that it needs is taken here.
  virtual void plan(Exchange /*exchange*/, std::span<const Part> /*parts*/) {}
  /// Every rank gives parts of the same sizes. Throws ExchangeAborted.
  virtual void run(Exchange exchange, std::span<const Part> parts) = 0;

  int64_t reached() const override { return reached_; }
  int64_t ended() const override { return ended_; }

 protected:
  std::atomic<int64_t> reached_ = 0, ended_ = 0;
};

/// Where the threads of one process wait for each other.
class Meeting {
 public:
  explicit Meeting(size_t ranks) : ranks_(ranks) {}
  /// Waits until every rank is here. Throws ExchangeAborted.
  void meet();
  /// Nobody waits any more: all throw what is lost, if something is.
  void abort(std::optional<RankLost> lost = std::nullopt) noexcept;

 private:
  const size_t ranks_;
  Mutex mutex_;
  CondVar changed_;
  size_t arrived_ TRAINYARD_GUARDED_BY(mutex_) = 0;
  int64_t meetings_ TRAINYARD_GUARDED_BY(mutex_) = 0;
  bool aborted_ TRAINYARD_GUARDED_BY(mutex_) = false;
  std::optional<RankLost> lost_ TRAINYARD_GUARDED_BY(mutex_);
};

/// Calls take(i, mean) for i of [0, count): the mean of data[r][i] over `ranks` ranks, summed in
/// their order.
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

/// What was gathered of all ranks' rows is multiplied by the exchange's factor.
void scale_rows(const ExchangePart& part, int64_t ranks);

/// The kernel of an exchange's op, or nullptr for another op. Without a communicator it can be
/// planned with and not run.
std::unique_ptr<Kernel> make_host_exchange(HostCommunicator* communicator, const Graph& graph,
                                           const Node& node);

}  // namespace trainyard
