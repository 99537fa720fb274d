// server/processes/executor.h: threads for work that would hold up who has it.
//
// gRPC's own threads serve every connection, and the supervisor's every worker: neither may wait
// for a disk. The queue is bounded: when it is full, a call is refused and the client retries.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "src/base/mutex.h"

namespace trainyard::server {

class Executor {
 public:
  /// At most so many threads, each begun when there is work that no idle one takes: a daemon that
  /// does nothing pays for none.
  Executor(size_t threads_max, size_t queue_len_max);
  /// Runs what is queued, then joins.
  ~Executor();
  /// False if the queue is full, stop() was called or there is no thread; `task` is not run then.
  [[nodiscard]] bool post(std::function<void()> task);
  /// Runs what is queued and joins; later posts are refused. Idempotent.
  void stop();

 private:
  void run();
  /// False if there is no thread at all, because the system gives none.
  bool begin_thread() TRAINYARD_REQUIRES(mu_);

  const size_t threads_max_, queue_len_max_;
  Mutex mu_;
  CondVar ready_;
  std::deque<std::function<void()>> queue_ TRAINYARD_GUARDED_BY(mu_);
  bool stopping_ TRAINYARD_GUARDED_BY(mu_) = false;
  size_t idle_ TRAINYARD_GUARDED_BY(mu_) = 0;  // threads
  std::vector<std::jthread> threads_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
