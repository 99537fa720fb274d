// server/processes/executor.h: a thread pool for work that would block other threads.
//
// gRPC's threads serve all connections, and the supervisor's thread serves all workers, so neither
// may wait for a disk. The queue is limited: when it is full, a call is refused and the client
// retries.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "src/base/mutex.h"

namespace trainyard::server {

class Executor {
 public:
  /// Uses at most `threads_max` threads. A thread is started only for a task that no idle thread
  /// takes, so an idle daemon has none.
  Executor(size_t threads_max, size_t queue_len_max);
  /// Calls stop().
  ~Executor();
  /// Queues a task. False if the queue is full, stop() was called or no thread could be started;
  /// `task` is not run then.
  [[nodiscard]] bool post(std::function<void()> task);
  /// Runs all queued tasks and joins the threads; later posts are refused. Idempotent.
  void stop();

 private:
  void run();
  /// Starts a thread. False if there is no thread at all, because the system could not start one.
  bool begin_thread() TRAINYARD_REQUIRES(mu_);

  const size_t threads_max_, queue_len_max_;
  Mutex mu_;
  CondVar ready_;
  std::deque<std::function<void()>> queue_ TRAINYARD_GUARDED_BY(mu_);
  bool stopping_ TRAINYARD_GUARDED_BY(mu_) = false;
  size_t idle_ TRAINYARD_GUARDED_BY(mu_) = 0;  // idle threads
  std::vector<std::jthread> threads_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
