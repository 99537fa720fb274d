// server/service/executor.h: the threads on which handlers run.
//
// gRPC's own threads serve every connection and must not wait for a disk; a handler runs here
// instead. The queue is bounded: when it is full, a call is refused and the client retries.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

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
  std::mutex mu_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;  // guarded by mu_
  bool stopping_ = false;                    // guarded by mu_
  std::vector<std::jthread> threads_;
};

}  // namespace trainyard::server
