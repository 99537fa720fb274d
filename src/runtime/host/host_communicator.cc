#include "src/runtime/host/host_communicator.h"

#include <cstring>
#include <utility>

#include "src/base/check.h"
#include "src/base/mutex.h"
#include "src/runtime/common/kernel_table.h"
#include "src/runtime/host/host_memory.h"

namespace trainyard {

std::vector<std::unique_ptr<HostCommunicator>> HostCommunicator::make(size_t ranks) {
  const auto group = std::make_shared<Group>();
  group->parts.resize(ranks);
  std::vector<std::unique_ptr<HostCommunicator>> all;
  for (size_t r = 0; r < ranks; ++r) all.emplace_back(new HostCommunicator(group, r));
  return all;
}

void HostCommunicator::meet() {
  MutexLock lock(group_->mutex);
  const int64_t meeting = group_->meetings;
  if (!group_->aborted && ++group_->arrived == group_->parts.size()) {
    group_->arrived = 0;
    ++group_->meetings;
    group_->changed.notify_all();
    return;
  }
  group_->changed.wait(lock, [&]() TRAINYARD_REQUIRES(group_->mutex) {
    return group_->aborted || group_->meetings != meeting;
  });
  if (group_->meetings == meeting) throw ExchangeAborted("another device has stopped");
}

void HostCommunicator::all_reduce(std::span<const Part> parts) {
  ++reached_;
  group_->parts[rank_] = parts;  // read by others between the two meetings alone
  meet();
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const std::span<const Part>& other : group_->parts) {
      TRAINYARD_CHECK(other.size() == parts.size() && other[i].count == parts[i].count &&
                          other[i].dtype == parts[i].dtype,
                      "the ranks exchange different tensors");
    }
    with_float_type(parts[i].dtype, [&]<typename T>(T) { reduce_share<T>(i); });
  }
  meet();
  ++ended_;
}

template <typename T>
void HostCommunicator::reduce_share(size_t index) const {
  const auto ranks = static_cast<int64_t>(group_->parts.size());
  const auto data = [&](int64_t r) {
    return static_cast<T*>(group_->parts[static_cast<size_t>(r)][index].data);
  };
  const int64_t count = group_->parts[rank_][index].count;
  const auto me = static_cast<int64_t>(rank_);
  const T share = T(1) / static_cast<T>(ranks);
  for (int64_t i = count * me / ranks; i < count * (me + 1) / ranks; ++i) {
    T sum = 0;
    for (int64_t r = 0; r < ranks; ++r) sum += data(r)[i] * share;
    for (int64_t r = 0; r < ranks; ++r) data(r)[i] = sum;
  }
}

void HostCommunicator::abort() noexcept {
  const MutexLock lock(group_->mutex);
  group_->aborted = true;
  group_->changed.notify_all();
}

std::unique_ptr<Kernel> make_host_exchange(HostCommunicator* communicator, const Graph& graph,
                                           const Node& node) {
  if (!is_exchange(node.op->type())) return nullptr;
  const bool starts = node.op->type() == "AllReduceStart";
  return make_kernel(
      [=, parts = exchange_parts(graph, node), name = node.name](const KernelArgs& a) mutable {
        TRAINYARD_CHECK(communicator != nullptr, name + ": the backend is connected to no other");
        bind_parts(parts, starts, a, std::memcpy);
        if (starts) communicator->all_reduce(parts);
      });
}

Status HostBackend::connect(std::span<Backend* const> ranks) {
  auto all = HostCommunicator::make(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    auto* const host = dynamic_cast<HostBackend*>(ranks[r]);
    TRAINYARD_CHECK(host != nullptr, "ranks of several kinds");
    host->communicator_ = std::move(all[r]);
  }
  return {};
}

}  // namespace trainyard
