#include "server/supervisor/errand.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "proto/convert/run.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr int64_t kCancelGraceMs = 1000;

Error draining_error() {
  return make_error(ErrorCode::kUnavailable, "SERVER_DRAINING",
                    "the server is stopping; call again when it is back");
}

class ErrandTask final : public TaskOwner {
 public:
  ErrandTask(const ErrandOptions& options, v1::Assignment assignment, Done<v1::Outcome> done,
             ErrandRunner::ReportHandler on_report, std::function<void()> gone)
      : options_(options),
        assignment_(std::move(assignment)),
        done_(std::move(done)),
        on_report_(std::move(on_report)),
        gone_(std::move(gone)) {}

  Status spawned(pid_t, int64_t) override { return {}; }
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
    } else if (on_report_) {
      on_report_(report);
    }
    done({});
  }

  void ended(const TaskEnd& end) override {
    if (end.late) {
      answer(options_.late);
    } else if (end.stop_asked) {
      answer(draining_error());
    } else {  // no effect after an answer
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

  const ErrandOptions options_;
  const v1::Assignment assignment_;
  Mutex mu_;
  Done<v1::Outcome> done_ TRAINYARD_GUARDED_BY(mu_);  // empty once called
  const ErrandRunner::ReportHandler on_report_;
  const std::function<void()> gone_;
};

}  // namespace

struct ErrandRunner::Impl : std::enable_shared_from_this<ErrandRunner::Impl> {
  Impl(Supervisor& s, ErrandOptions o) : supervisor(s), options(std::move(o)) {}

  struct Item {
    Errand errand = 0;
    v1::Assignment assignment;
    Done<v1::Outcome> done;
    ReportHandler on_report;
    std::vector<std::string> gpus;
  };
  struct Running {
    std::string task;  // empty until the supervisor has named it
    bool cancelled = false;
  };

  void start(Item item) {
    const Errand errand = item.errand;
    Supervisor::NewTask fresh;
    fresh.kind = options.kind;
    fresh.time_max_ms = options.time_max_ms;
    fresh.gpus = std::move(item.gpus);
    fresh.owner = std::make_shared<ErrandTask>(
        options, std::move(item.assignment), std::move(item.done), std::move(item.on_report),
        [impl = shared_from_this(), errand] { impl->task_gone(errand); });
    const std::string task = supervisor.start(std::move(fresh));
    bool cancelled = false;
    {
      const MutexLock lock(mu);
      const auto it = running.find(errand);
      if (it == running.end()) return;  // already over
      it->second.task = task;
      cancelled = it->second.cancelled;
    }
    if (cancelled) supervisor.stop(task, "cancel", kCancelGraceMs);
  }

  void task_gone(Errand errand) {
    Item next;
    {
      const MutexLock lock(mu);
      running.erase(errand);
      if (waiting.empty()) return;
      next = std::move(waiting.front());
      waiting.pop_front();
      running[next.errand] = {};
    }
    start(std::move(next));
  }

  Supervisor& supervisor;
  const ErrandOptions options;
  Mutex mu;
  Errand last TRAINYARD_GUARDED_BY(mu) = 0;
  std::map<Errand, Running> running TRAINYARD_GUARDED_BY(mu);  // at most options.running_max
  std::deque<Item> waiting TRAINYARD_GUARDED_BY(mu);           // at most options.waiting_max
  bool draining TRAINYARD_GUARDED_BY(mu) = false;
};

ErrandRunner::ErrandRunner(Supervisor& supervisor, ErrandOptions options)
    : impl_(std::make_shared<Impl>(supervisor, std::move(options))) {}

Errand ErrandRunner::run(v1::Assignment assignment, Done<v1::Outcome> done, ReportHandler on_report,
                         std::vector<std::string> gpus) {
  Impl::Item item{0, std::move(assignment), std::move(done), std::move(on_report), std::move(gpus)};
  {
    MutexLock lock(impl_->mu);
    item.errand = ++impl_->last;
    const Errand errand = item.errand;
    if (impl_->draining) {
      lock.unlock();
      item.done(draining_error());
      return errand;
    }
    if (static_cast<int>(impl_->running.size()) >= impl_->options.running_max) {
      if (static_cast<int>(impl_->waiting.size()) < impl_->options.waiting_max) {
        impl_->waiting.push_back(std::move(item));
        return errand;
      }
      lock.unlock();
      item.done(impl_->options.busy);
      return errand;
    }
    impl_->running[errand] = {};
  }
  const Errand errand = item.errand;
  impl_->start(std::move(item));
  return errand;
}

void ErrandRunner::cancel(Errand errand) {
  std::string task;
  Done<v1::Outcome> done;
  {
    const MutexLock lock(impl_->mu);
    if (const auto it = impl_->running.find(errand); it != impl_->running.end()) {
      it->second.cancelled = true;
      task = it->second.task;
    }
    const auto it = std::ranges::find(impl_->waiting, errand, &Impl::Item::errand);
    if (it != impl_->waiting.end()) {
      done = std::move(it->done);
      impl_->waiting.erase(it);
    }
  }
  if (!task.empty()) impl_->supervisor.stop(task, "cancel", kCancelGraceMs);
  if (done) done(make_error(ErrorCode::kCancelled, "CANCELLED", "the caller has disconnected"));
}

void ErrandRunner::drain() {
  std::deque<Impl::Item> waiting;
  {
    const MutexLock lock(impl_->mu);
    impl_->draining = true;
    waiting.swap(impl_->waiting);
  }
  for (Impl::Item& item : waiting) item.done(draining_error());
}

}  // namespace trainyard::server
