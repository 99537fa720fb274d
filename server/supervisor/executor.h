// server/supervisor/executor.h: threads for work that would hold up who has it.
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
  Executor(int threads, size_t queue_len_max);
  /// Runs what is queued, then joins.
  ~Executor();
  /// False if the queue is full or stop() was called; `task` is not run then.
  [[nodiscard]] bool post(std::function<void()> task);
  /// Runs what is queued and joins; later posts are refused. Idempotent.
  void stop();

 private:
  void run();

  const size_t queue_len_max_;
  Mutex mu_;
  CondVar ready_;
  std::deque<std::function<void()>> queue_ TRAINYARD_GUARDED_BY(mu_);
  bool stopping_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace trainyard::server
