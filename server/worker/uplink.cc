#include "server/worker/uplink.h"

#include <utility>

namespace trainyard {
namespace {

/// Returns whether the daemon has no disk space at the moment.
bool is_full(const Error& error) {
  return error.reason == "DISK_LOW" || error.reason == "STORAGE_FULL";
}

}  // namespace

Uplink::~Uplink() {
  {
    const MutexLock lock(mu_);
    closing_ = true;
  }
  stop_.request_stop();
  changed_.notify_all();
}

void Uplink::checkpoint_saved(int64_t step, const std::filesystem::path& folder,
                              v1::WorkerReport report) {
  Checkpoint fresh{step, {}, std::move(report), Clock::now()};
  Result<std::vector<PushedFile>> files = open_folder(folder, /*digests=*/false);
  if (!files.ok()) return report_failure(step, files.error());
  fresh.files = std::move(files).value();
  std::deque<Checkpoint> passed_over;
  {
    const MutexLock lock(mu_);
    if (!keeps_some_) {
      passed_over.swap(waiting_);
    } else if (waiting_.size() == kWaitingMax) {
      passed_over.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    waiting_.push_back(std::move(fresh));
  }
  changed_.notify_all();
  if (keeps_some_ && !passed_over.empty()) {
    warn("the checkpoint of step " + std::to_string(passed_over.front().step) +
         " was not kept: checkpoints are written faster than the network transfers them to the "
         "server");
  }
}

Status Uplink::model_written(const std::filesystem::path& folder) {
  drain();
  ASSIGN_OR_RETURN(const std::vector<PushedFile> files, open_folder(folder, /*digests=*/true));
  Status s = remote_.push(v1::FILE_SET_MODEL, 0, files, stop_.get_token());
  if (s.ok() || s.error().code == ErrorCode::kCancelled) return s;
  // Training is complete. The job resumes from its last checkpoint and then only pushes the model.
  return make_error(
      s.error().code, is_full(s.error()) ? "STORAGE_FULL" : "STORAGE_ERROR",
      "the work is done, but the server did not accept the model: " + s.error().message);
}

void Uplink::drain() {
  MutexLock lock(mu_);
  changed_.wait(lock, [this]() TRAINYARD_REQUIRES(mu_) { return waiting_.empty() && !pushing_; });
}

void Uplink::abandon() { stop_.request_stop(); }

void Uplink::run() {
  for (;;) {
    Checkpoint next;
    {
      MutexLock lock(mu_);
      changed_.wait(lock,
                    [this]() TRAINYARD_REQUIRES(mu_) { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      pushing_ = true;
    }
    if (!stop_.stop_requested()) push(std::move(next));
    {
      const MutexLock lock(mu_);
      pushing_ = false;
    }
    changed_.notify_all();
  }
}

void Uplink::push(Checkpoint checkpoint) {
  const Status s =
      remote_.push(v1::FILE_SET_CHECKPOINT, checkpoint.step, checkpoint.files, stop_.get_token());
  if (!s.ok()) {
    if (s.error().code != ErrorCode::kCancelled) report_failure(checkpoint.step, s.error());
    return;
  }
  last_push_ms_ =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - checkpoint.begin)
          .count();
  logged_full_ = false;
  stream_.send(std::move(checkpoint.report));
}

void Uplink::report_failure(int64_t step, const Error& error) {
  if (is_full(error) && logged_full_.exchange(true)) return;  // reported once until a push succeeds
  v1::WorkerReport report;
  report.mutable_checkpoint()->set_step(step);
  report.mutable_checkpoint()->set_error(
      error.message +
      (is_full(error) ? "; training continues and tries again with the next one" : ""));
  stream_.send(std::move(report));
}

void Uplink::warn(std::string text) {
  v1::WorkerReport report;
  report.mutable_log()->set_level(v1::LogLine::WARN);
  report.mutable_log()->set_text(std::move(text));
  stream_.send(std::move(report));
}

}  // namespace trainyard
