#include "server/supervisor/executor.h"

#include <spdlog/spdlog.h>

#include "server/config/log.h"
#include "src/base/mutex.h"

namespace trainyard::server {

Executor::Executor(int threads, size_t queue_len_max) : queue_len_max_(queue_len_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Executor::~Executor() { stop(); }

bool Executor::post(std::function<void()> task) {
  {
    const MutexLock lock(mu_);
    if (stopping_ || queue_.size() >= queue_len_max_) return false;
    queue_.push_back(std::move(task));
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
  threads_.clear();  // joins
}

void Executor::run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      ready_.wait(lock, [this]() TRAINYARD_REQUIRES(mu_) { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    try {  // tasks answer their own callers; exceptions that get here have lost theirs
      task();
    } catch (const std::exception& e) {
      spdlog::error("event=executor_fault {}", kv("what", e.what()));
    }
  }
}

}  // namespace trainyard::server
