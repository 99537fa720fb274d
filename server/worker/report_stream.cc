#include "server/worker/report_stream.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace trainyard {

ReportStream::ReportStream(v1::WorkerService::Stub& stub, Options options,
                           std::function<void(std::string reason)> on_stop)
    : stub_(stub),
      options_(std::move(options)),
      on_stop_(std::move(on_stop)),
      unattended_(options_.unattended) {
  if (options_.muted) return;
  if (!options_.spool.empty()) {
    Result<ReportSpool> spool = ReportSpool::create(options_.spool);
    if (spool.ok()) {
      spool_ = std::move(spool).value();
    } else {  // such as on a full disk: reports are kept only in memory
      std::fprintf(stderr, "trainyard-worker: event=spool_not_created message=\"%s\"\n",
                   spool.error().message.c_str());
    }
  }
  thread_ = std::thread([this] { run(); });
}

ReportStream::Options ReportStream::options_of(const v1::Assignment& assignment, std::string task,
                                               std::string nonce) {
  Options options{.task = std::move(task), .nonce = std::move(nonce)};
  options.protocol = assignment.protocol();
  options.heartbeat_interval = std::chrono::milliseconds(assignment.heartbeat_interval_ms());
  if (assignment.unattended_ms() > 0) {
    options.unattended = std::chrono::milliseconds(assignment.unattended_ms());
  }
  options.spool = assignment.train().spool_path();
  return options;
}

ReportStream::~ReportStream() {
  {
    const MutexLock lock(mu_);
    closing_ = true;
    if (context_) context_->TryCancel();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ReportStream::send(v1::WorkerReport report) {
  if (options_.muted) return;
  MutexLock lock(mu_);
  const auto has_room = [this]() TRAINYARD_REQUIRES(mu_) {
    return fenced_ || (queue_.size() < kReportsMax && on_disk_ == 0) ||
           (spool_ && spool_->accepts());
  };
  changed_.wait(lock, has_room);
  report.set_number(next_number_);
  const int64_t offset = spool_ ? spool_->bytes() : 0;
  bool stored = false;
  while (!fenced_) {
    if (!stored && spool_ && spool_->accepts()) {
      const Status appended = spool_->append(report);
      stored = appended.ok();
      if (!stored) {
        std::fprintf(stderr, "trainyard-worker: event=report_not_spooled message=\"%s\"\n",
                     appended.error().message.c_str());
      }
    }
    if (queue_.size() < kReportsMax && on_disk_ == 0) {
      enqueue(std::move(report));
      break;
    }
    if (stored) {
      if (on_disk_++ == 0) disk_offset_ = offset;
      break;
    }
    changed_.wait(lock, has_room);
  }
  if (fenced_) {  // nothing will read it; the worker is about to exit
    dropped_ = true;
    return;
  }
  ++next_number_;
  changed_.notify_all();
}

void ReportStream::enqueue(v1::WorkerReport report) {
  TRAINYARD_CHECK(
      queue_.empty() || report.number() == queue_.back().number() + 1,
      "report " + std::to_string(report.number()) + " follows another than the one before it");
  queue_.push_back(std::move(report));
}

void ReportStream::refill() {
  if (on_disk_ == 0 || queue_.size() > kReportsMax / 2) return;
  while (on_disk_ > 0 && queue_.size() < kReportsMax) {
    TRAINYARD_CHECK(spool_ && disk_offset_ < spool_->bytes(),
                    std::to_string(on_disk_) + " unsent reports are in the spool from byte " +
                        std::to_string(disk_offset_) + " on, but the spool ends there");
    std::optional<v1::WorkerReport> report = spool_->read_at(disk_offset_);
    if (!report) {  // a stored report is unreadable, and later ones may not be sent without it
      std::fprintf(stderr, "trainyard-worker: event=spool_unreadable\n");
      fenced_ = true;
      return;
    }
    enqueue(std::move(*report));
    --on_disk_;
  }
}

void ReportStream::tidy_spool() {
  if (!spool_ || on_disk_ > 0) return;
  const bool enough = spool_->bytes() > (queue_.empty() ? kSpoolBytesKept : kSpoolBytesMany);
  if (enough || (!spool_->accepts() && queue_.empty())) (void)spool_->keep(queue_);
}

void ReportStream::set_on_command(std::function<void(const v1::WorkerCommand&)> on_command) {
  const MutexLock lock(command_mu_);
  on_command_ = std::move(on_command);
}

void ReportStream::set_unreachable_max(std::chrono::milliseconds time) { unattended_ = time; }

void ReportStream::set_progress(int64_t step, double samples_per_second) {
  step_.store(step, std::memory_order_relaxed);
  if (samples_per_second > 0)
    samples_per_second_.store(samples_per_second, std::memory_order_relaxed);
}

void ReportStream::set_times(v1::RunTimes times) {
  const MutexLock lock(mu_);
  times_ = std::move(times);
}

bool ReportStream::drain() {
  MutexLock lock(mu_);
  changed_.wait(lock, [this]() TRAINYARD_REQUIRES(mu_) {
    return all_sent() || fenced_ || other_version_ || out_of_reach_ ||
           (away_ && spool_ && spool_->accepts());
  });
  if (all_sent()) return !dropped_;
  return !fenced_ && spool_ && spool_->accepts() && spool_->sync().ok();
}

bool ReportStream::fenced() {
  const MutexLock lock(mu_);
  return fenced_;
}

bool ReportStream::out_of_reach() {
  const MutexLock lock(mu_);
  return out_of_reach_;
}

void ReportStream::run() {
  using Steady = std::chrono::steady_clock;
  Steady::time_point last_contact = Steady::now();
  std::chrono::milliseconds delay = kReconnectDelay;
  for (;;) {
    const Contact contact = run_stream();
    if (contact != Contact::kNone) last_contact = Steady::now();
    // Back off after a refusal, because a refused report may cost the daemon much work, such as the
    // digest of a large model.
    delay =
        contact == Contact::kRefused ? std::min(delay * 2, kReconnectDelayMax) : kReconnectDelay;
    MutexLock lock(mu_);
    if (closing_ || fenced_ || other_version_) return;
    const auto silence = Steady::now() - last_contact;
    away_ = silence > options_.away_after;
    if (away_) changed_.notify_all();
    // If the spool's folder was deleted, no daemon will ever read the spool.
    std::error_code ec;
    const bool folder_gone = contact == Contact::kNone && !options_.spool.empty() &&
                             !std::filesystem::exists(options_.spool.parent_path(), ec) && !ec;
    if (silence > unattended_.load() || folder_gone) {
      out_of_reach_ = true;
      changed_.notify_all();
      lock.unlock();
      request_stop(folder_gone ? "the state folder was deleted"
                               : "the daemon has been unreachable for too long");
      lock.lock();
    }
    changed_.wait_for(lock, delay, [this]() TRAINYARD_REQUIRES(mu_) { return closing_; });
  }
}

ReportStream::Contact ReportStream::run_stream() {
  std::unique_ptr<Stream> stream;
  int64_t first_unacknowledged = 0;
  {
    const MutexLock lock(mu_);
    if (closing_) return Contact::kNone;
    context_ = std::make_unique<grpc::ClientContext>();
    sent_ = 0;
    window_ = 1;
    broken_ = false;
    refill();
    first_unacknowledged = queue_.empty() ? next_number_ : queue_.front().number();
    stream = stub_.Report(context_.get());
  }
  std::thread reader([this, &stream] { read_commands(*stream); });

  bool first = true;
  for (;;) {
    v1::WorkerReport report;
    {
      MutexLock lock(mu_);
      changed_.wait_for(lock, options_.heartbeat_interval, [this]() TRAINYARD_REQUIRES(mu_) {
        return closing_ || broken_ || may_send();
      });
      if (closing_ || broken_) break;
      if (may_send()) {
        report = queue_[sent_++];
      } else {
        v1::WorkerReport::Heartbeat& beat = *report.mutable_heartbeat();
        beat.set_step(step_.load(std::memory_order_relaxed));
        beat.set_samples_per_second(samples_per_second_.load(std::memory_order_relaxed));
        const Pace::Reading pace =
            pace_.read(system_clock().steady_us(), options_.heartbeat_interval.count());
        if (queue_.size() < kReportsMax)
          beat.set_idle_ms(pace.idle_ms);  // with a full queue the run waits in send()
        beat.set_usual_ms(pace.usual_ms);
        if (times_) *beat.mutable_times() = *times_;
      }
    }
    if (first) {  // the first report identifies the sender
      report.set_task(options_.task);
      report.set_nonce(options_.nonce);
      report.set_protocol(options_.protocol);
      first = false;
    }
    if (!stream->Write(report)) break;
  }
  stream->WritesDone();
  {
    const MutexLock lock(mu_);
    if (closing_) context_->TryCancel();
  }
  reader.join();
  const grpc::Status status = stream->Finish();

  const MutexLock lock(mu_);
  if (status.error_code() == grpc::StatusCode::ABORTED ||
      status.error_code() == grpc::StatusCode::NOT_FOUND ||
      status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    fenced_ = true;  // a newer attempt exists, or the daemon does not know this task: exit
  }
  // The reason VERSION_SKEW is in the serialized details.
  if (status.error_details().find("VERSION_SKEW") != std::string::npos) {
    other_version_ = true;  // that daemon lets the worker save a checkpoint, and reads the spool
  }
  const int64_t first_now = queue_.empty() ? next_number_ : queue_.front().number();
  changed_.notify_all();
  if (fenced_ && !closing_)
    request_stop("the daemon rejected this worker: " + status.error_message());
  if (other_version_ && !closing_) request_stop(status.error_message());
  if (status.ok() || first_now > first_unacknowledged) return Contact::kAccepted;
  // The daemon's own errors have details; gRPC's errors about a connection have none.
  return status.error_details().empty() ? Contact::kNone : Contact::kRefused;
}

void ReportStream::read_commands(Stream& stream) {
  v1::WorkerCommand command;
  while (stream.Read(&command)) {
    if (command.has_stop()) request_stop(command.stop().reason());
    if (command.kind_case() == v1::WorkerCommand::kAcknowledged)
      acknowledge(command.acknowledged());
    if (command.has_serve() || command.has_calibrate() ||
        command.kind_case() == v1::WorkerCommand::kCancelCall) {
      const MutexLock lock(command_mu_);
      if (on_command_) on_command_(command);
    }
  }
  const MutexLock lock(mu_);
  broken_ = true;
  changed_.notify_all();
}

void ReportStream::acknowledge(int64_t number) {
  const MutexLock lock(mu_);
  while (sent_ > 0 && !queue_.empty() && queue_.front().number() <= number) {
    queue_.pop_front();
    --sent_;
    window_ = std::min(window_ * 2, kReportsMax);
  }
  refill();
  tidy_spool();
  changed_.notify_all();
}

void ReportStream::request_stop(const std::string& reason) {
  if (!stop_requested_.exchange(true)) on_stop_(reason);
}

}  // namespace trainyard
