#include "server/worker/report_stream.h"

#include <algorithm>
#include <utility>

#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace trainyard {

ReportStream::ReportStream(v1::WorkerService::Stub& stub, Identity identity,
                           std::chrono::milliseconds heartbeat_interval,
                           std::function<void(std::string reason)> on_stop)
    : stub_(stub),
      identity_(std::move(identity)),
      heartbeat_interval_(heartbeat_interval),
      on_stop_(std::move(on_stop)),
      thread_([this] { run(); }) {}

ReportStream::~ReportStream() {
  {
    const MutexLock lock(mu_);
    closing_ = true;
    if (context_) context_->TryCancel();
  }
  changed_.notify_all();
  thread_.join();
}

void ReportStream::send(v1::WorkerReport report) {
  MutexLock lock(mu_);
  changed_.wait(
      lock, [this]() TRAINYARD_REQUIRES(mu_) { return queue_.size() < kReportsMax || fenced_; });
  if (fenced_) return;  // nothing will read it; the worker is about to exit
  report.set_number(next_number_++);
  queue_.push_back(std::move(report));
  changed_.notify_all();
}

void ReportStream::set_on_command(std::function<void(const v1::WorkerCommand&)> on_command) {
  const MutexLock lock(command_mu_);
  on_command_ = std::move(on_command);
}

void ReportStream::set_unreachable_max(std::chrono::milliseconds time) { unreachable_max_ = time; }

void ReportStream::set_progress(int64_t step, double samples_per_second) {
  step_.store(step, std::memory_order_relaxed);
  if (samples_per_second > 0)
    samples_per_second_.store(samples_per_second, std::memory_order_relaxed);
}

bool ReportStream::drain() {
  MutexLock lock(mu_);
  changed_.wait(lock, [this]() TRAINYARD_REQUIRES(mu_) {
    return queue_.empty() || fenced_ || out_of_reach_;
  });
  return queue_.empty();
}

void ReportStream::run() {
  using Steady = std::chrono::steady_clock;
  Steady::time_point last_contact = Steady::now();
  std::chrono::milliseconds delay = kReconnectDelay;
  for (;;) {
    const Contact contact = run_stream();
    if (contact != Contact::kNone) last_contact = Steady::now();
    // A report that is refused may cost the daemon much, such as the digest of a large model.
    delay =
        contact == Contact::kRefused ? std::min(delay * 2, kReconnectDelayMax) : kReconnectDelay;
    MutexLock lock(mu_);
    if (closing_ || fenced_) return;
    if (Steady::now() - last_contact > unreachable_max_.load()) {
      out_of_reach_ = true;
      changed_.notify_all();
      lock.unlock();
      request_stop("the daemon has been out of reach for too long");
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
    broken_ = false;
    first_unacknowledged = queue_.empty() ? next_number_ : queue_.front().number();
    stream = stub_.Report(context_.get());
  }
  std::thread reader([this, &stream] { read_commands(*stream); });

  bool first = true;
  for (;;) {
    v1::WorkerReport report;
    {
      MutexLock lock(mu_);
      changed_.wait_for(lock, heartbeat_interval_, [this]() TRAINYARD_REQUIRES(mu_) {
        return closing_ || broken_ || sent_ < queue_.size();
      });
      if (closing_ || broken_) break;
      if (sent_ < queue_.size()) {
        report = queue_[sent_++];
      } else {
        v1::WorkerReport::Heartbeat& beat = *report.mutable_heartbeat();
        beat.set_step(step_.load(std::memory_order_relaxed));
        beat.set_samples_per_second(samples_per_second_.load(std::memory_order_relaxed));
        const Pace::Reading pace =
            pace_.read(system_clock().steady_us(), heartbeat_interval_.count());
        if (queue_.size() < kReportsMax)
          beat.set_idle_ms(pace.idle_ms);  // else the run waits for us
        beat.set_usual_ms(pace.usual_ms);
      }
    }
    if (first) {  // identifies the sender
      report.set_task(identity_.task);
      report.set_nonce(identity_.nonce);
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
  const int64_t first_now = queue_.empty() ? next_number_ : queue_.front().number();
  changed_.notify_all();
  if (fenced_ && !closing_)
    request_stop("the daemon rejected this worker: " + status.error_message());
  if (status.ok() || first_now > first_unacknowledged) return Contact::kAccepted;
  // The daemon's own refusals carry details; what gRPC says of a connection does not.
  return status.error_details().empty() ? Contact::kNone : Contact::kRefused;
}

void ReportStream::read_commands(Stream& stream) {
  v1::WorkerCommand command;
  while (stream.Read(&command)) {
    if (command.has_stop()) request_stop(command.stop().reason());
    if (command.kind_case() == v1::WorkerCommand::kAcknowledged)
      acknowledge(command.acknowledged());
    if (command.has_serve() || command.kind_case() == v1::WorkerCommand::kCancelCall) {
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
  }
  changed_.notify_all();
}

void ReportStream::request_stop(const std::string& reason) {
  if (!stop_requested_.exchange(true)) on_stop_(reason);
}

}  // namespace trainyard
