#include "src/train/rank_team.h"

#include <algorithm>
#include <chrono>

#include "src/base/detached_call.h"
#include "src/base/mutex.h"

namespace trainyard {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{50};

using Steady = std::chrono::steady_clock;

Steady::time_point after(double seconds) {
  constexpr double kYear = 365.0 * 24 * 3600;  // replaces an infinite limit, which would overflow
  return Steady::now() + std::chrono::duration_cast<Steady::duration>(
                             std::chrono::duration<double>(std::min(seconds, kYear)));
}

}  // namespace

struct RankTeam::Shared {
  explicit Shared(size_t ranks) : busy(ranks) {}
  mutable Mutex mutex;
  CondVar begun, back;
  std::function<void(size_t)> task TRAINYARD_GUARDED_BY(mutex);
  std::vector<bool> busy TRAINYARD_GUARDED_BY(mutex);  // by rank
  std::optional<Failure> failure TRAINYARD_GUARDED_BY(mutex);
  bool ends TRAINYARD_GUARDED_BY(mutex) = false;
  // Set if a thread was detached. That thread is then the last owner of this object.
  std::optional<UnfinishedWork> detached TRAINYARD_GUARDED_BY(mutex);

  bool all_returned() const TRAINYARD_REQUIRES(mutex) {
    return std::ranges::none_of(busy, [](bool b) { return b; });
  }
};

RankTeam::RankTeam(size_t ranks) : shared_(std::make_shared<Shared>(ranks)) {
  for (size_t r = 0; r < ranks; ++r) threads_.emplace_back(serve, shared_, r);
}

RankTeam::~RankTeam() {
  {
    const MutexLock lock(shared_->mutex);
    shared_->ends = true;
    shared_->begun.notify_all();
  }
  for (std::thread& t : threads_) {
    if (t.joinable()) t.join();
  }
}

void RankTeam::serve(const std::shared_ptr<Shared>& shared, size_t rank) {
  MutexLock lock(shared->mutex);
  while (true) {
    shared->begun.wait(lock, [&]() TRAINYARD_REQUIRES(shared->mutex) {
      return shared->ends || shared->busy[rank];
    });
    if (!shared->busy[rank]) return;
    std::function<void(size_t)> task = shared->task;
    lock.unlock();
    std::exception_ptr error;
    try {
      task(rank);
    } catch (...) {
      error = std::current_exception();
    }
    task = nullptr;  // released before the task is reported as done
    lock.lock();
    if (error != nullptr && !shared->failure.has_value()) shared->failure = {rank, error};
    shared->busy[rank] = false;
    shared->back.notify_all();
  }
}

std::optional<RankTeam::Failure> RankTeam::run(
    std::function<void(size_t)> task, double limit_s,
    const std::function<std::optional<Failure>()>& watch) {
  const Steady::time_point end = after(limit_s);
  MutexLock lock(shared_->mutex);
  shared_->task = std::move(task);
  shared_->busy.assign(shared_->busy.size(), true);
  shared_->begun.notify_all();
  const auto decided = [&]() TRAINYARD_REQUIRES(shared_->mutex) {
    return shared_->failure.has_value() || shared_->all_returned();
  };
  while (!decided()) {
    if (shared_->back.wait_for(lock, kWatchInterval, decided)) break;
    lock.unlock();
    auto seen = watch();
    lock.lock();
    if (seen.has_value() && !shared_->failure.has_value()) shared_->failure = std::move(seen);
    if (!decided() && Steady::now() >= end) shared_->failure = Failure{};
  }
  return shared_->failure;
}

bool RankTeam::is_busy(size_t rank) const {
  const MutexLock lock(shared_->mutex);
  return shared_->busy[rank];
}

void RankTeam::end(std::function<void(size_t)> last, double limit_s) {
  MutexLock lock(shared_->mutex);
  const auto all_return = [&]() TRAINYARD_REQUIRES(shared_->mutex) {
    return shared_->back.wait_until(lock, after(limit_s), [&]() TRAINYARD_REQUIRES(shared_->mutex) {
      return shared_->all_returned();
    });
  };
  if (all_return()) {
    shared_->task = std::move(last);
    shared_->busy.assign(shared_->busy.size(), true);
    shared_->begun.notify_all();
    (void)all_return();
  }
  shared_->task = nullptr;
  for (size_t r = 0; r < threads_.size(); ++r) {
    if (!shared_->busy[r]) continue;
    threads_[r].detach();
    if (!shared_->detached.has_value()) shared_->detached.emplace();
  }
}

}  // namespace trainyard
