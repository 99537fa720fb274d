#include "server/processes/one_shot_runner.h"

#include <deque>
#include <functional>
#include <utility>

#include "proto/convert/run.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

class OneShotTask final : public TaskOwner {
 public:
  OneShotTask(const OneShotOptions& options, v1::Assignment assignment, Done<v1::Outcome> done,
              std::function<void()> gone)
      : options_(options),
        assignment_(std::move(assignment)),
        done_(std::move(done)),
        gone_(std::move(gone)) {}

  Result<v1::Assignment> assignment() override { return assignment_; }

  void report(const v1::WorkerReport& report, Done<void> done) override {
    if (report.has_outcome()) {
      const v1::Outcome& outcome = report.outcome();
      if (outcome.kind() == v1::Outcome::SUCCEEDED) {
        answer(outcome);
      } else {
        Error error = to_error(outcome);
        error.message = options_.paths.hide(error.message);
        answer(std::move(error));
      }
    }
    done({});
  }

  void ended(const TaskEnd& end, TaskHold /*hold*/) override {
    if (end.late) {
      answer(options_.late);
    } else if (end.start_error && end.start_error->reason == "SANDBOX_UNAVAILABLE") {
      answer(*end.start_error);
    } else if (end.stop_asked) {
      answer(stopping_error());
    } else {  // has no effect after a result
      answer(make_error(ErrorCode::kInternal, "WORKER_LOST",
                        "the worker ended without an answer; the server's log has details"));
    }
    gone_();
  }

 private:
  void answer(Result<v1::Outcome> outcome) {
    Done<v1::Outcome> done;
    {
      const MutexLock lock(mu_);
      done = std::exchange(done_, nullptr);
    }
    if (done) done(std::move(outcome));
  }

  const OneShotOptions options_;
  const v1::Assignment assignment_;
  Mutex mu_;
  Done<v1::Outcome> done_ TRAINYARD_GUARDED_BY(mu_);  // empty after the call
  const std::function<void()> gone_;
};

}  // namespace

Error stopping_error() {
  return make_error(ErrorCode::kUnavailable, "SERVER_DRAINING",
                    "the server is stopping; call again when it is back");
}

struct OneShotRunner::Impl : std::enable_shared_from_this<OneShotRunner::Impl> {
  Impl(Supervisor& s, OneShotOptions o) : supervisor(s), options(std::move(o)) {}

  struct Item {
    v1::Assignment assignment;
    v1::WorkerSandbox sandbox;
    Done<v1::Outcome> done;
    std::vector<std::string> gpus;
  };

  void start(Item item) {
    Supervisor::NewTask fresh;
    fresh.kind = options.kind;
    fresh.time_max_ms = options.time_max_ms;
    fresh.gpus = std::move(item.gpus);
    fresh.sandbox = std::move(item.sandbox);
    fresh.owner =
        std::make_shared<OneShotTask>(options, std::move(item.assignment), std::move(item.done),
                                      [impl = shared_from_this()] { impl->task_gone(); });
    supervisor.start(std::move(fresh));
  }

  void task_gone() {
    Item next;
    {
      const MutexLock lock(mu);
      TRAINYARD_CHECK(running > 0, "a task ends that was not started");
      --running;
      if (waiting.empty()) return;
      next = std::move(waiting.front());
      waiting.pop_front();
      ++running;
    }
    start(std::move(next));
  }

  Supervisor& supervisor;
  const OneShotOptions options;
  Mutex mu;
  int running TRAINYARD_GUARDED_BY(mu) = 0;           // at most options.running_max
  std::deque<Item> waiting TRAINYARD_GUARDED_BY(mu);  // at most options.waiting_max
  bool draining TRAINYARD_GUARDED_BY(mu) = false;
};

OneShotRunner::OneShotRunner(Supervisor& supervisor, OneShotOptions options)
    : impl_(std::make_shared<Impl>(supervisor, std::move(options))) {}

void OneShotRunner::run(v1::Assignment assignment, v1::WorkerSandbox sandbox,
                        Done<v1::Outcome> done, std::vector<std::string> gpus) {
  Impl::Item item{std::move(assignment), std::move(sandbox), std::move(done), std::move(gpus)};
  {
    MutexLock lock(impl_->mu);
    if (impl_->draining) {
      lock.unlock();
      return item.done(stopping_error());
    }
    if (impl_->running >= impl_->options.running_max) {
      if (static_cast<int>(impl_->waiting.size()) < impl_->options.waiting_max) {
        impl_->waiting.push_back(std::move(item));
        return;
      }
      lock.unlock();
      return item.done(impl_->options.busy);
    }
    ++impl_->running;
  }
  impl_->start(std::move(item));
}

void OneShotRunner::drain() {
  std::deque<Impl::Item> waiting;
  {
    const MutexLock lock(impl_->mu);
    impl_->draining = true;
    waiting.swap(impl_->waiting);
  }
  for (Impl::Item& item : waiting) item.done(stopping_error());
}

}  // namespace trainyard::server
