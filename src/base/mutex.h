// src/base/mutex.h: mutexes whose use clang's thread safety analysis checks.
//
//   Mutex mu_;
//   int waiting_ TRAINYARD_GUARDED_BY(mu_) = 0;  // clang refuses to read or write it ...
//   void start_next() TRAINYARD_REQUIRES(mu_);   // ... or to call it without a lock of mu_
//
//   const MutexLock lock(mu_);
//   changed_.wait(lock, [this]() TRAINYARD_REQUIRES(mu_) { return waiting_ > 0; });
//
// The standard library's classes are not annotated, so product code uses only these. GCC ignores
// the annotations; `scripts/check clang` checks them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#if defined(__clang__)
#define TRAINYARD_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TRAINYARD_THREAD_ATTRIBUTE(x)
#endif
#define TRAINYARD_GUARDED_BY(mutex) TRAINYARD_THREAD_ATTRIBUTE(guarded_by(mutex))
#define TRAINYARD_REQUIRES(mutex) TRAINYARD_THREAD_ATTRIBUTE(requires_capability(mutex))

namespace trainyard {

class TRAINYARD_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a mutex until the end of the block, except between unlock() and lock().
class TRAINYARD_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TRAINYARD_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() TRAINYARD_THREAD_ATTRIBUTE(release_capability()) {}
  void unlock() TRAINYARD_THREAD_ATTRIBUTE(release_capability()) { lock_.unlock(); }
  void lock() TRAINYARD_THREAD_ATTRIBUTE(acquire_capability()) { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

/// Every wait has a condition, which is evaluated with the mutex held.
class CondVar {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

  template <typename Condition>
  void wait(MutexLock& lock, Condition condition) {
    changed_.wait(lock.lock_, std::move(condition));
  }
  /// The waits that can end early return the condition's last value: false after a timeout or a
  /// request to stop.
  template <typename Condition>
  bool wait(MutexLock& lock, std::stop_token stop, Condition condition) {
    return changed_.wait(lock.lock_, std::move(stop), std::move(condition));
  }
  template <typename Rep, typename Period, typename Condition>
  bool wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> time, Condition condition) {
    return changed_.wait_for(lock.lock_, time, std::move(condition));
  }
  template <typename Clock, typename Duration, typename Condition>
  bool wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> end,
                  Condition condition) {
    return changed_.wait_until(lock.lock_, end, std::move(condition));
  }
  template <typename Clock, typename Duration, typename Condition>
  bool wait_until(MutexLock& lock, std::stop_token stop,
                  std::chrono::time_point<Clock, Duration> end, Condition condition) {
    return changed_.wait_until(lock.lock_, std::move(stop), end, std::move(condition));
  }

 private:
  std::condition_variable_any changed_;
};

}  // namespace trainyard
