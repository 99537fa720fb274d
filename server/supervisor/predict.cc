#include "server/supervisor/predict.h"

#include <deque>
#include <mutex>
#include <utility>

#include "proto/convert/run.h"

namespace trainyard::server {
namespace {

Error draining_error() {
  return make_error(ErrorCode::kUnavailable, "SERVER_DRAINING",
                    "the server is stopping; call again when it is back");
}

class PredictTask final : public TaskOwner {
 public:
  PredictTask(const StatePaths& paths, v1::Assignment assignment, Done<v1::PredictResponse> done,
              std::function<void()> gone)
      : paths_(paths),
        assignment_(std::move(assignment)),
        done_(std::move(done)),
        gone_(std::move(gone)) {}

  Status spawned(pid_t, int64_t) override { return {}; }
  Result<v1::Assignment> assignment() override { return assignment_; }

  void report(const v1::WorkerReport& report, Done<void> done) override {
    if (report.has_outcome()) {
      const v1::Outcome& outcome = report.outcome();
      if (outcome.kind() == v1::Outcome::SUCCEEDED) {
        answer(outcome.predictions());
      } else {
        Error error = to_error(outcome);
        error.message = paths_.hide(error.message);
        answer(std::move(error));
      }
    }
    done({});
  }

  void ended(const TaskEnd& end) override {
    if (end.late) {
      answer(make_error(ErrorCode::kDeadlineExceeded, "PREDICT_TIMEOUT",
                        "the prediction took too long; send fewer rows"));
    } else if (end.stop_asked) {
      answer(draining_error());
    } else {  // no effect after an answer
      answer(make_error(ErrorCode::kInternal, "WORKER_LOST",
                        "the worker ended without an answer; the server's log tells more"));
    }
    gone_();
  }

 private:
  void answer(Result<v1::PredictResponse> response) {
    Done<v1::PredictResponse> done;
    {
      const std::lock_guard lock(mu_);
      done = std::exchange(done_, nullptr);
    }
    if (done) done(std::move(response));
  }

  const StatePaths paths_;
  const v1::Assignment assignment_;
  std::mutex mu_;
  Done<v1::PredictResponse> done_;  // GUARDED_BY(mu_): empty once called
  const std::function<void()> gone_;
};

}  // namespace

struct PredictRunner::Impl : std::enable_shared_from_this<PredictRunner::Impl> {
  Impl(Supervisor& s, PredictOptions o) : supervisor(s), options(std::move(o)) {}

  struct Item {
    v1::Assignment assignment;
    Done<v1::PredictResponse> done;
  };

  void start(Item item) {
    Supervisor::NewTask fresh;
    fresh.kind = "predict";
    fresh.time_max_ms = options.time_max_ms;
    fresh.owner = std::make_shared<PredictTask>(options.paths, std::move(item.assignment),
                                                std::move(item.done),
                                                [impl = shared_from_this()] { impl->task_gone(); });
    (void)supervisor.start(std::move(fresh));
  }

  void task_gone() {
    Item next;
    {
      const std::lock_guard lock(mu);
      if (waiting.empty()) {
        --running;
        return;
      }
      next = std::move(waiting.front());
      waiting.pop_front();
    }
    start(std::move(next));
  }

  Supervisor& supervisor;
  const PredictOptions options;
  std::mutex mu;
  int running = 0;           // GUARDED_BY(mu)
  std::deque<Item> waiting;  // GUARDED_BY(mu), at most options.running_max
  bool draining = false;     // GUARDED_BY(mu)
};

PredictRunner::PredictRunner(Supervisor& supervisor, PredictOptions options)
    : impl_(std::make_shared<Impl>(supervisor, std::move(options))) {}

void PredictRunner::run(const std::string& job_uid, const v1::PredictRequest& request,
                        Done<v1::PredictResponse> done) {
  Impl::Item item;
  v1::PredictTask& task = *item.assignment.mutable_predict();
  task.set_model_dir(impl_->options.paths.model(job_uid).string());
  *task.mutable_request() = request;
  task.set_threads(impl_->options.threads);
  item.done = std::move(done);
  {
    std::unique_lock lock(impl_->mu);
    if (impl_->draining) {
      lock.unlock();
      return item.done(draining_error());
    }
    if (impl_->running >= impl_->options.running_max) {
      if (static_cast<int>(impl_->waiting.size()) < impl_->options.running_max) {
        impl_->waiting.push_back(std::move(item));
        return;
      }
      lock.unlock();
      return item.done(make_error(ErrorCode::kResourceExhausted, "PREDICT_BUSY",
                                  "too many predictions run and wait; call again in a moment"));
    }
    ++impl_->running;
  }
  impl_->start(std::move(item));
}

void PredictRunner::drain() {
  std::deque<Impl::Item> waiting;
  {
    const std::lock_guard lock(impl_->mu);
    impl_->draining = true;
    waiting.swap(impl_->waiting);
  }
  for (Impl::Item& item : waiting) item.done(draining_error());
}

}  // namespace trainyard::server
