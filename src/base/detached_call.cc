#include "src/base/detached_call.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/mutex.h"

namespace trainyard {
namespace {

std::atomic<int> unfinished_works = 0;

void leave_if_unfinished(int status, void* /*argument*/) {
  if (unfinished_works == 0) return;
  (void)std::fflush(stdout);  // only these two: another stream may be locked by a thread that waits
  (void)std::fflush(stderr);
  ::_exit(status);
}

}  // namespace

// Handlers run in the reverse order of their registration, so this one runs before those of all
// libraries that were opened earlier.
UnfinishedWork::UnfinishedWork() {
  static const int registered = ::on_exit(leave_if_unfinished, nullptr);
  (void)registered;
  ++unfinished_works;
}

UnfinishedWork::~UnfinishedWork() { --unfinished_works; }

struct DetachedCall::Progress {
  Mutex mutex;
  CondVar changed;
  std::optional<UnfinishedWork> work TRAINYARD_GUARDED_BY(mutex);  // empty when the call has ended
};

DetachedCall::DetachedCall(std::function<void()> call) noexcept
    : progress_(std::make_shared<Progress>()) {
  {
    const MutexLock lock(progress_->mutex);
    progress_->work.emplace();
  }
  try {
    std::thread([progress = progress_, made = std::move(call)] {
      made();
      const MutexLock lock(progress->mutex);
      progress->work.reset();
      progress->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // the call is not made
  }
}

bool DetachedCall::wait_until(std::chrono::steady_clock::time_point end) const {
  MutexLock lock(progress_->mutex);
  return progress_->changed.wait_until(lock, end, [&]() TRAINYARD_REQUIRES(progress_->mutex) {
    return !progress_->work.has_value();
  });
}

}  // namespace trainyard
