#include "src/base/following_digest.h"

#include <algorithm>
#include <utility>

namespace trainyard {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

}  // namespace

void FollowingDigest::follow_to(int64_t bytes) {
  if (!threaded_) return;
  {
    const MutexLock lock(mu_);
    ready_ = std::max(ready_, bytes);
    if (!thread_.joinable()) {
      if (ready_ - state_.bytes < kThreadBytes) return;
      thread_ = std::thread([this] { run(); });
    }
  }
  changed_.notify_one();
}

void FollowingDigest::run() noexcept {
  try {
    for (;;) {
      int64_t count = 0;
      {
        MutexLock lock(mu_);
        changed_.wait(
            lock, [this]() TRAINYARD_REQUIRES(mu_) { return stopped_ || ready_ > state_.bytes; });
        if (stopped_) return;
        count = std::min(kPieceBytes, ready_ - state_.bytes);
      }
      // After an error the thread ends; finish() reads the piece again and returns the error.
      if (!hash_part_(state_.hash, state_.bytes, count).ok()) return;
      const MutexLock lock(mu_);
      state_.bytes += count;
    }
  } catch (...) {
    const MutexLock lock(mu_);
    state_ = {};  // the hash may include a part of the piece
  }
}

void FollowingDigest::stop() {
  {
    const MutexLock lock(mu_);
    stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

FollowingDigest::State FollowingDigest::take_state() && {
  stop();
  return std::move(state_);
}

Result<std::string> FollowingDigest::finish(int64_t bytes) {
  stop();
  while (state_.bytes < bytes) {
    const int64_t count = std::min(kPieceBytes, bytes - state_.bytes);
    if (Status s = hash_part_(state_.hash, state_.bytes, count); !s.ok()) {
      return std::move(s).error();
    }
    state_.bytes += count;
  }
  return state_.hash.finish();
}

}  // namespace trainyard
