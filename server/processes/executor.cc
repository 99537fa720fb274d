#include "server/processes/executor.h"

#include <spdlog/spdlog.h>

#include <system_error>
#include <utility>

#include "server/config/log.h"
#include "src/base/mutex.h"

namespace trainyard::server {

Executor::Executor(size_t threads_max, size_t queue_len_max)
    : threads_max_(threads_max), queue_len_max_(queue_len_max) {}

Executor::~Executor() { stop(); }

bool Executor::post(std::function<void()> task) {
  {
    const MutexLock lock(mu_);
    if (stopping_ || queue_.size() >= queue_len_max_) return false;
    queue_.push_back(std::move(task));
    if (idle_ < queue_.size() && threads_.size() < threads_max_ && !begin_thread()) {
      queue_.pop_back();
      return false;
    }
  }
  ready_.notify_one();
  return true;
}

void Executor::stop() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
  }
  ready_.notify_all();
  std::vector<std::jthread> threads;
  {
    const MutexLock lock(mu_);
    threads.swap(threads_);  // no more are started
  }
  threads.clear();  // joins
}

bool Executor::begin_thread() {
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& e) {
    spdlog::warn("event=thread_not_started {}", kv("what", e.what()));
  }
  return !threads_.empty();
}

void Executor::run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      ++idle_;
      ready_.wait(lock, [this]() TRAINYARD_REQUIRES(mu_) { return stopping_ || !queue_.empty(); });
      --idle_;
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    try {  // tasks report errors to their callers, so an exception here can only be logged
      task();
    } catch (const std::exception& e) {
      spdlog::error("event=executor_fault {}", kv("what", e.what()));
    }
  }
}

}  // namespace trainyard::server
