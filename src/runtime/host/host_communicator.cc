#include "src/runtime/host/host_communicator.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "src/base/check.h"
#include "src/runtime/common/kernel_table.h"
#include "src/runtime/host/host_memory.h"
#include "src/runtime/host/peer_communicator.h"
#include "src/runtime/host/thread_communicator.h"

namespace trainyard {

void Barrier::wait() {
  MutexLock lock(mutex_);
  const int64_t generation = generation_;
  if (!aborted_ && ++arrived_ == ranks_) {
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
    return;
  }
  changed_.wait(lock,
                [&]() TRAINYARD_REQUIRES(mutex_) { return aborted_ || generation_ != generation; });
  if (generation_ != generation) return;
  if (lost_.has_value()) throw RankLost(*lost_);
  throw ExchangeAborted("another device has stopped");
}

void Barrier::abort(std::optional<RankLost> lost) noexcept {
  const MutexLock lock(mutex_);
  if (!aborted_) lost_ = std::move(lost);
  aborted_ = true;
  changed_.notify_all();
}

void scale_rows(const ExchangePart& part, int64_t ranks) {
  if (part.factor == 1) return;
  with_float_type(part.dtype, [&]<typename T>(T) {
    auto* const all = static_cast<T*>(part.rows);
    for (int64_t i = 0; i < part.count * ranks; ++i) all[i] *= static_cast<T>(part.factor);
  });
}

std::unique_ptr<Kernel> make_host_exchange(HostCommunicator* communicator, const Graph& graph,
                                           const Node& node) {
  const std::string_view type = node.op->type();
  if (!is_exchange(type)) return nullptr;
  if (!starts_exchange(type)) {  // the exchange has already ended in its start node
    return make_kernel([results = exchange_results(graph, node)](const KernelArgs& a) {
      results.take(a, std::memcpy);
    });
  }
  if (communicator != nullptr) communicator->plan(exchange_of(type), exchange_parts(graph, node));
  return make_kernel([=, exchange = exchange_of(type), parts = exchange_parts(graph, node),
                      name = node.name](const KernelArgs& a) mutable {
    TRAINYARD_CHECK(communicator != nullptr, name + ": the backend is connected to no other");
    bind_parts(parts, exchange, a, std::memcpy);
    communicator->run(exchange, parts);
  });
}

Status HostBackend::connect(std::span<Backend* const> ranks) {
  auto all = ThreadCommunicator::make(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) take(ranks[r], std::move(all[r]));
  return {};
}

Status HostBackend::join(std::span<Backend* const> ranks, const ProcessGroup& group) {
  auto all = PeerCommunicator::make(ranks.size(), group.peers);
  for (size_t r = 0; r < ranks.size(); ++r) take(ranks[r], std::move(all[r]));
  return {};
}

void HostBackend::take(Backend* rank, std::unique_ptr<HostCommunicator> communicator) {
  auto* const host = dynamic_cast<HostBackend*>(rank);
  TRAINYARD_CHECK(host != nullptr, "ranks of several kinds");
  host->communicator_ = std::move(communicator);
}

}  // namespace trainyard
