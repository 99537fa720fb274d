// src/base/detached_call.h: calls of libraries that may never return, such as those that wait for a
// GPU. Such a call gets a thread of its own, for which nobody has to wait.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace trainyard {

/// Marks work that may never end. While an object of this class exists, exit() ends the process
/// immediately, with the given status and after flushing standard output: the exit handlers and
/// destructors of libraries could wait for the work forever, or free what it uses.
class UnfinishedWork {
 public:
  UnfinishedWork();
  ~UnfinishedWork();
  UnfinishedWork(const UnfinishedWork&) = delete;
  UnfinishedWork& operator=(const UnfinishedWork&) = delete;
};

/// A call on a thread of its own, which counts as unfinished work until it returns. The destructor
/// does not wait. Thread-safe.
class DetachedCall {
 public:
  /// `call` must not throw, and must own what it uses. If the system has no thread for it, it is
  /// not made, and stays unfinished work.
  explicit DetachedCall(std::function<void()> call) noexcept;
  /// Waits until the call has returned, but not longer than until `end`. Returns whether it has.
  bool wait_until(std::chrono::steady_clock::time_point end) const;

 private:
  struct Progress;
  std::shared_ptr<Progress> progress_;
};

}  // namespace trainyard
