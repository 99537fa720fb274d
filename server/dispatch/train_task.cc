#include "server/dispatch/train_task.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <vector>

#include "proto/convert/resources.h"
#include "server/config/log.h"
#include "server/dispatch/host_trouble.h"
#include "server/dispatch/job_files.h"
#include "server/forecast/cluster_rates.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/report_spool.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/retry.h"
#include "src/base/mutex.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {
namespace {

constexpr int64_t kVersionSkewPauseUs = 60'000'000;
constexpr size_t kReportsAtOnce = 128;  // spooled reports per batch, usually one commit
constexpr const char* kKernelFault = "KERNEL_FAULT";  // reason of workers' and attempts' outcomes

Move terminal(JobState to, std::string reason, std::string message) {
  Move move;
  move.to = to;
  move.reason = std::move(reason);
  move.message = std::move(message);
  return move;
}

Move requeue(std::string reason, std::string message, int64_t retry_time_us = 0) {
  Move move = terminal(JobState::kQueued, std::move(reason), std::move(message));
  move.retry_time_us = retry_time_us;
  move.uncounted = true;
  return move;
}

// A remote worker may push at most twice the bytes of the planned tensors plus kPushBytesBeside for
// other state, or kPushBytesMax if the plan is unknown or implausible.
constexpr int64_t kPushBytesBeside = int64_t{1} << 30;
constexpr int64_t kPushBytesMax = int64_t{1} << 46;

/// Returns whether the cluster ended the attempt for reasons of its own, or has lost track of it.
bool was_reclaimed(const RemoteEnd& remote_end) {
  if (remote_end.how.empty()) return true;
  constexpr std::string_view kReasons[] = {"NODE_FAIL", "BOOT_FAIL", "PREEMPTED",
                                           "CANCELLED", "REQUEUED",  "REVOKED",
                                           "SUSPENDED", "STOPPED",   "DEADLINE"};
  return std::ranges::any_of(
      kReasons, [&](std::string_view reason) { return remote_end.how.starts_with(reason); });
}

/// Replaces all but printable ASCII, because a worker's text may not be valid UTF-8.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte >= 0x20 && byte < 0x7f) || c == '\n' || c == '\t' ? c : '?';
  }
  return out;
}

}  // namespace

TrainTask::TrainTask(Store& store, Supervisor& supervisor, const Clock& clock, Job job,
                     TrainTaskOptions options, std::function<void(bool)> gone)
    : store_(store),
      supervisor_(supervisor),
      clock_(clock),
      job_(std::move(job)),
      options_(std::move(options)),
      gone_(std::move(gone)),
      parameter_count_(job_.plan.parameter_count()) {}

void TrainTask::make_room(std::string for_job) {
  const MutexLock lock(mu_);
  makes_room_for_ = std::move(for_job);
}

void TrainTask::spawned(pid_t pid, int64_t start_time, Done<void> recorded) {
  store_.jobs().set_process(job_.uid, job_.attempt, pid, start_time, std::move(recorded));
}

v1::WorkerReport TrainTask::without_paths(v1::WorkerReport log) const {
  log.mutable_log()->set_text(options_.paths.hide(log.log().text()));
  return log;
}

void TrainTask::enrolled(std::string nonce_digest, Done<void> recorded) {
  store_.jobs().set_nonce(job_.uid, job_.attempt, std::move(nonce_digest), std::move(recorded));
}

Result<FileGrant> TrainTask::grant() {
  FileGrant grant;
  grant.dataset = options_.paths.dataset(options_.dataset_digest);
  ASSIGN_OR_RETURN(const std::string weights, initial_weights_path());
  grant.initial_weights = weights;
  grant.checkpoints = options_.paths.checkpoints(job_.uid);
  grant.model = options_.paths.model(job_.uid);
  grant.spec = job_.spec;
  const int64_t planned = job_.plan.checkpoints().size_bytes();
  grant.push_bytes_max =
      planned > 0 && planned < kPushBytesMax ? 2 * planned + kPushBytesBeside : kPushBytesMax;
  return grant;
}

Result<v1::Assignment> TrainTask::assignment() {
  v1::Assignment assignment;
  v1::TrainTask& task = *assignment.mutable_train();
  task.set_job(job_.name());
  task.set_attempt(job_.attempt);
  *task.mutable_spec() = job_.spec;
  const std::vector<std::string> devices = node_devices();
  task.set_device(devices.front());
  task.mutable_devices()->Add(devices.begin(), devices.end());
  task.set_threads(options_.threads);
  task.set_nodes(options_.is_remote ? nodes_of(job_.spec.resources()) : 1);
  if (Status s = add_paths(task); !s.ok()) return std::move(s).error();
  if (const auto last = store_.jobs().find_attempt(job_.uid, job_.attempt - 1); last.ok()) {
    task.set_names_faults(last->outcome == kKernelFault);
  }
  task.set_rows_stay_on_host(job_.plan.memory().dataset_bytes() == 0);
  return assignment;
}

std::vector<std::string> TrainTask::node_devices() const {
  if (cluster_of(job_.devices).empty()) return job_.devices;
  const v1::Resources& resources = job_.spec.resources();
  if (resources.device() != v1::Resources::GPU) return {"devices/cpu"};
  std::vector<std::string> names;
  for (int32_t i = 0; i < gpus_of(resources); ++i)
    names.push_back("devices/gpu-" + std::to_string(i));
  return names;
}

Status TrainTask::add_paths(v1::TrainTask& task) const {
  const StatePaths& paths = options_.paths;
  ASSIGN_OR_RETURN(std::string weights, initial_weights_path());
  if (options_.is_remote) {
    task.set_dataset_digest(options_.dataset_digest);
    task.set_dataset_dir("dataset");
    task.set_checkpoint_dir("checkpoints");
    task.set_model_dir("model");
    task.set_spool_path("reports");
    if (!weights.empty()) task.set_initial_weights_path("initial");
    if (options_.time_algorithms) task.set_algorithms_dir("algorithms");
    return {};
  }
  task.set_dataset_dir(paths.dataset(options_.dataset_digest).string());
  task.set_checkpoint_dir(paths.checkpoints(job_.uid).string());
  task.set_model_dir(paths.written_model(job_.uid).string());
  task.set_spool_path(paths.spool(job_.uid, job_.attempt).string());
  task.set_initial_weights_path(std::move(weights));
  if (options_.time_algorithms) task.set_algorithms_dir(paths.algorithms().string());
  return {};
}

std::string TrainTask::completed_message(const v1::Outcome& outcome) const {
  const int64_t total = job_.plan.steps_total();
  if (outcome.steps_done() >= total) return "All steps are done.";
  return "Stopped early, as the recipe specifies, after step " +
         std::to_string(outcome.steps_done()) + " of " + std::to_string(total) + ".";
}

Result<std::string> TrainTask::initial_weights_path() const {
  const v1::InitialWeights& weights = job_.spec.recipe().initial_weights();
  const std::string& name = weights.model().empty() ? weights.job() : weights.model();
  if (name.empty()) return std::string();
  // The submission has checked that the model exists. If it was deleted since, the worker reports
  // that, unless the job resumes and does not need it.
  const StoredName source = split_stored_name(job_.project, name);
  const Result<Model> model = store_.models().find(source.project, source.id);
  if (model.ok()) return options_.paths.weights(model->job_uid, model->digest).string();
  if (model.error().reason == "MODEL_NOT_FOUND") return std::string();
  return model.error();  // an error of the store, not a missing model
}

void TrainTask::report(const v1::WorkerReport& report, Done<void> done) {
  Result<AttemptUpdate> update = update_of(report);
  if (!update.ok()) return done(update.error());
  if (options_.adopted && !reported_adoption_.exchange(true)) {
    AttemptUpdate adoption;
    adoption.job_uid = job_.uid;
    adoption.attempt = job_.attempt;
    v1::LogLine& line = *adoption.events.emplace_back().mutable_log();
    line.set_level(v1::LogLine::INFO);
    line.set_text("the daemon was restarted; the worker continued training");
    line.set_from_server(true);
    store_.jobs().update_attempt(std::move(adoption), [](const Result<Job>&) {});
  }
  store_.jobs().update_attempt(std::move(update).value(),
                               [done = std::move(done)](Result<Job> job) {
                                 if (job.ok()) return done({});
                                 done(std::move(job).error());
                               });
}

Result<AttemptUpdate> TrainTask::update_of(const v1::WorkerReport& report) {
  if (report.has_outcome()) return update_from_outcome(report);
  if (report.has_started()) {
    parameter_count_ = report.started().plan().parameter_count();
    resumed_from_ = report.started().resumed_from_step();
  }
  return update_from_report(job_.uid, job_.attempt,
                            report.has_log() ? without_paths(report) : report);
}

/// The state of the steps after the end of the process. Each step waits for the store or for files
/// and then starts the next one.
struct TrainTask::Ending {
  const TaskEnd end;
  const TaskHold hold;
  std::optional<SpoolReader> spool = std::nullopt;
  Status read = {};  // the first error of reading the spool or of storing its reports
  int64_t taken = 0;
  size_t unanswered = 0;  // reports that were queued in the store and not answered yet
};

void TrainTask::ended(const TaskEnd& end, TaskHold hold) {
  if (options_.cluster_rates) options_.cluster_rates->worker_gone(task_id());
  auto ending = std::make_shared<Ending>(Ending{.end = end, .hold = std::move(hold)});
  supervisor_.in_background([this, ending] { open_spool(ending); });
}

void TrainTask::open_spool(const std::shared_ptr<Ending>& ending) {
  const Result<Attempt> attempt = store_.jobs().find_attempt(job_.uid, job_.attempt);
  if (!attempt.ok() || attempt->end_time_us != 0) return store_end(ending);
  Result<SpoolReader> spool =
      SpoolReader::open(options_.paths.spool(job_.uid, job_.attempt), attempt->acknowledged);
  if (spool.ok()) {
    ending->spool = std::move(spool).value();
  } else {
    ending->read = spool.error();
  }
  take_reports(ending);
}

void TrainTask::take_reports(const std::shared_ptr<Ending>& ending) {
  std::vector<AttemptUpdate> updates;
  while (ending->read.ok() && updates.size() < kReportsAtOnce) {
    const std::optional<v1::WorkerReport> report = ending->spool->next();
    if (!report) break;
    Result<AttemptUpdate> update = update_of(*report);
    if (update.ok()) {
      updates.push_back(std::move(update).value());
    } else {
      ending->read = update.error();
    }
  }
  if (updates.empty()) {
    note_spool(*ending);
    return store_end(ending);
  }
  // The store applies the updates in this order. Its callbacks run one after another, but the
  // callback of a refused update may run early.
  ending->unanswered = updates.size();
  for (AttemptUpdate& update : updates) {
    store_.jobs().update_attempt(std::move(update), [this, ending](const Result<Job>& stored) {
      if (stored.ok()) {
        ++ending->taken;
      } else if (ending->read.ok()) {
        ending->read = stored.error();
      }
      if (--ending->unanswered > 0) return;
      supervisor_.in_background([this, ending] { take_reports(ending); });
    });
  }
}

void TrainTask::note_spool(const Ending& ending) {
  if (ending.taken > 0) {
    spdlog::info("event=spool_imported {} attempt={} reports={}", kv("job", job_.name()),
                 job_.attempt, ending.taken);
  }
  if (ending.read.ok()) return;
  const Error& error = ending.read.error();
  spdlog::warn("event=spool_not_imported {} {}", kv("job", job_.name()),
               kv("message", error.message));
  if (error.reason == "REPORT_GAP") return;  // the store was replaced by an older copy
  const MutexLock lock(mu_);  // not a failure of the job, which continues from its checkpoint
  if (!host_trouble_) host_trouble_ = error;
}

Result<AttemptUpdate> TrainTask::update_from_outcome(const v1::WorkerReport& report) {
  const v1::Outcome& outcome = report.outcome();
  AttemptUpdate update;
  update.job_uid = job_.uid;
  update.attempt = job_.attempt;
  update.report_number = report.number();
  switch (outcome.kind()) {
    case v1::Outcome::SUCCEEDED: {
      Result<NewModel> model = read_model(outcome);
      if (!model.ok() && model.error().reason == "MODEL_FILE_INVALID") {
        update.move = terminal(JobState::kFailed, "MODEL_FILE_INVALID",
                               "The worker delivered no usable model: " + model.error().message);
        break;
      }
      if (!model.ok() && model.error().code != ErrorCode::kNotFound) {
        // The work is done and must not be lost. With this error the worker keeps its report and
        // sends it again.
        spdlog::warn("event=model_unreadable {} {}", kv("job", job_.name()),
                     kv("message", model.error().message));
        return model.error();
      }
      if (!model.ok()) {  // the model's file is missing; the next attempt writes it again
        note_host_trouble(kStorageError,
                          "the work is done, but the server " + model.error().message);
        break;
      }
      update.model = std::move(model).value();
      update.add_result(outcome);
      if (options_.is_remote && outcome.has_node()) {
        update.node = node_name(outcome.node(), on_gpus());
        const MutexLock lock(mu_);
        node_ = outcome.node();
      }
      for (std::string& warning : update.warnings) warning = options_.paths.hide(warning);
      update.move = terminal(JobState::kSucceeded, "COMPLETED", completed_message(outcome));
      break;
    }
    case v1::Outcome::STOPPED: {
      stopped_ = true;
      const auto continues = outcome.metadata().find(kContinueKey);
      continues_ = continues != outcome.metadata().end() && continues->second == kContinueTimeLimit;
      const Result<Job> now = store_.jobs().find_uid(job_.uid);
      if (now.ok() && now->cancel_requested) {
        update.move = terminal(JobState::kCancelled, "CANCELLED", "The job was cancelled.");
      }
      break;  // otherwise the job returns to the queue when the process has ended
    }
    case v1::Outcome::DEVICE_FAULT:
      note_fault(outcome);
      break;
    case v1::Outcome::REFUSED:
      if (outcome.reason() == kDeviceBusy) {
        const MutexLock lock(mu_);
        device_busy_ = options_.paths.hide(printable(outcome.message()));
        break;  // the job returns to the queue when the process has ended
      }
      if (const std::string trouble = host_trouble_of(outcome.reason(), options_.is_remote);
          !trouble.empty()) {
        note_host_trouble(trouble, printable(outcome.message()));
        break;  // the job returns to the queue when the process has ended
      }
      update.move =
          terminal(JobState::kFailed, outcome.reason(), options_.paths.hide(outcome.message()));
      break;
    default:  // Outcome::FAULT: a retry would fail again.
      update.move =
          terminal(JobState::kFailed, outcome.reason().empty() ? "INTERNAL" : outcome.reason(),
                   outcome.message().empty() ? "The worker failed."
                                             : options_.paths.hide(outcome.message()));
      break;
  }
  return update;
}

void TrainTask::note_host_trouble(std::string reason, std::string message) {
  const MutexLock lock(mu_);
  host_trouble_ = make_error(ErrorCode::kUnavailable, std::move(reason),
                             options_.paths.hide(std::move(message)));
}

void TrainTask::note_fault(const v1::Outcome& outcome) {
  const MutexLock lock(mu_);
  device_fault_ = {outcome.reason() == kKernelFault,
                   options_.paths.hide(printable(outcome.message()))};
}

std::optional<TrainTask::DeviceFault> TrainTask::device_fault() const {
  const MutexLock lock(mu_);
  return device_fault_;
}

std::optional<std::string> TrainTask::device_busy() const {
  const MutexLock lock(mu_);
  return device_busy_;
}

std::optional<Error> TrainTask::host_trouble() const {
  const MutexLock lock(mu_);
  return host_trouble_;
}

Move TrainTask::after_fault(const DeviceFault& fault, const Job& job, int64_t now_us) {
  const std::string after = " after step " + std::to_string(job.progress.step()) + ": ";
  if (fault.of_program) {
    return after_worker_lost(job, kKernelFault,
                             "A kernel failed on " + job.devices_text() + after + fault.message,
                             now_us, kKernelFaultsMax);
  }
  return after_worker_lost(job, "DEVICE_FAULT",
                           (job.devices.size() > 1 ? "One of the devices " : "The device ") +
                               job.devices_text() + " failed" + after + fault.message,
                           now_us);
}

Move TrainTask::after_time_limit(const Job& job) const {
  const std::string ended = "The worker stopped before the time limit of its allocation";
  // Without a new checkpoint this counts as a loss, or the job might be requeued forever.
  const bool begun = resumed_from_ >= 0;
  if (begun ? job.checkpoint_step <= resumed_from_ : !options_.adopted) {
    return after_worker_lost(job, "TIME_LIMIT_TOO_SHORT",
                             ended + " without a new checkpoint; it needs a longer time limit.",
                             clock_.wall_us());
  }
  const std::string step = std::to_string(job.checkpoint_step);
  return requeue("TIME_LIMIT_CONTINUED",
                 ended + "; the job continues from the checkpoint of step " + step + ".");
}

Move TrainTask::after_stop(const Job& job) const {
  if (continues_) return after_time_limit(job);
  const MutexLock lock(mu_);
  if (makes_room_for_.empty()) {
    return requeue("WORKER_STOPPED",
                   "The worker was asked to stop; the job resumes from its last checkpoint.");
  }
  return requeue("PREEMPTED",
                 "It made room for " + makes_room_for_ + "; " +
                     (job.checkpoint_step > 0 ? "it resumes from the checkpoint of step " +
                                                    std::to_string(job.checkpoint_step) + "."
                                              : "it starts over, because it has no checkpoint."));
}

std::optional<Error> TrainTask::trouble_of(const TaskEnd& end) const {
  if (end.start_error) return end.start_error;
  if (const std::optional<Error> reported = host_trouble()) return reported;
  if (end.version_skew || end.stop_asked) return std::nullopt;
  if (end.exit.signalled && end.exit.number == SIGBUS) {
    // A truncated file causes this only once: the next attempt refuses the file by its size.
    return make_error(ErrorCode::kUnavailable, kStorageError,
                      "the worker was killed by " + describe(end.exit) +
                          ": a mapped file could not be read, or memory failed");
  }
  if (end.attached) return std::nullopt;
  if (end.remote_end) {
    if (was_reclaimed(*end.remote_end)) return std::nullopt;
    return make_error(ErrorCode::kUnavailable, "WORKER_START_FAILED",
                      "its worker did not request its job: " + end.remote_end->text);
  }
  // The process had not received its job yet. So a library is missing or the host is overloaded.
  return make_error(
      ErrorCode::kUnavailable, "WORKER_START_FAILED",
      end.silent ? std::string("the worker program did not request its job in time")
                 : "the worker program ended before it requested its job: " + describe(end.exit));
}

Move TrainTask::after_remote_end(const RemoteEnd& remote_end, const Job& job, int64_t now_us) {
  constexpr int64_t kPauseUs = 5'000'000;  // the same cause may end the next attempt immediately
  const std::string at =
      " at step " + std::to_string(job.progress.step()) + ": " + remote_end.text + ".";
  // A timeout counts as a loss, or a job without checkpoints would be requeued forever.
  if (remote_end.how.starts_with("TIMEOUT")) {
    Move move = after_worker_lost(job, "CLUSTER_TIME_LIMIT_REACHED",
                                  "The cluster's time limit ended it" + at, now_us);
    move.uncounted = true;
    return move;
  }
  if (was_reclaimed(remote_end)) {
    return requeue("CLUSTER_RECLAIMED", "The cluster reclaimed its node" + at, now_us + kPauseUs);
  }
  return after_worker_lost(job, "WORKER_LOST", "Its worker in the cluster ended" + at, now_us);
}

Move TrainTask::move_after(const TaskEnd& end, const Job& job) const {
  const int64_t now = clock_.wall_us();
  const std::optional<Error> trouble = trouble_of(end);
  if (!trouble || job.cancel_requested) options_.trouble->over(job.uid);
  if (job.cancel_requested) {
    return terminal(JobState::kCancelled, "CANCELLED", "The job was cancelled.");
  }
  // This is handled like the loss of a job's only worker.
  if (trouble && trouble->reason == kRankLost) {
    return after_worker_lost(job, kRankLost, "One of its nodes was lost: " + trouble->message + ".",
                             now);
  }
  if (trouble && trouble->reason == kClusterRefused) {
    if (trouble->code == ErrorCode::kFailedPrecondition) options_.trouble->over(job.uid);
    if (trouble->code != ErrorCode::kUnavailable) {
      return after_cluster_refusal(job, *trouble, options_.trouble->refused(job.uid), now);
    }
  }
  if (trouble) {
    const int64_t pause_us = options_.trouble->pause_us(job.uid);
    std::string what = trouble->message;
    if (what.ends_with('.')) what.pop_back();
    const char* whose = job.spec.resources().cluster().empty() ? "this host" : "its cluster";
    return requeue(trouble->reason,
                   std::string("A problem of ") + whose + ", not of the job: " + what +
                       ". The job restarts in " + std::to_string(pause_us / 1'000'000) + " s.",
                   now + pause_us);
  }
  if (end.version_skew) {
    return requeue("VERSION_SKEW",
                   "The worker program and the daemon have incompatible versions; "
                   "the job is retried in a minute.",
                   now + kVersionSkewPauseUs);
  }
  if (const std::optional<DeviceFault> fault = device_fault()) return after_fault(*fault, job, now);
  if (const std::optional<std::string> busy = device_busy()) {
    return requeue(kDeviceBusy, job.devices_text() + ": " + *busy + ".");
  }
  if (stopped_ || end.stop_asked) return after_stop(job);
  if (end.lost_from_sight) {
    Move move = requeue("DAEMON_RESTARTED",
                        job.checkpoint_step > 0
                            ? "The daemon restarted; the job resumes from the checkpoint of step " +
                                  std::to_string(job.checkpoint_step) + "."
                            : "The daemon restarted; the job starts over.");
    move.unseen = true;
    return move;
  }
  if (end.remote_end) return after_remote_end(*end.remote_end, job, now);
  const std::string at = " at step " + std::to_string(job.progress.step()) + ".";
  if (end.silent) {
    return after_worker_lost(job, "WORKER_NOT_RESPONDING",
                             "The worker was silent for too long and was killed" + at, now);
  }
  if (end.stalled_ms > 0) {
    return after_stall(job,
                       "The worker made no progress for " + std::to_string(end.stalled_ms / 1000) +
                           " s and was killed" + at,
                       now);
  }
  if (end.exit.unknown) {
    return after_worker_lost(job, "WORKER_CRASHED",
                             "The worker, which an earlier daemon had started, ended" + at, now);
  }
  if (end.exit.signalled) {
    return after_worker_lost(job, "WORKER_KILLED",
                             "The worker was killed by " + describe(end.exit) + at, now);
  }
  // The worker believes that it is done; a retry would end the same way. (A remote worker's outcome
  // may have been lost with the connection.)
  if (end.exit.number == 0 && !options_.is_remote) {
    return terminal(JobState::kFailed, "WORKER_PROTOCOL_ERROR",
                    "The worker ended without reporting an outcome" + at);
  }
  return after_worker_lost(job, "WORKER_CRASHED",
                           "The worker exited with " + describe(end.exit) + at, now);
}

void TrainTask::store_end(const std::shared_ptr<Ending>& ending) {
  const TaskEnd& end = ending->end;
  const Result<Job> job = store_.jobs().find_uid(job_.uid);
  // If this attempt is no longer active in the store, its terminal state was stored before the
  // process ended. Another attempt cannot have begun.
  if (!job.ok() || !is_active(job->state) || job->attempt != job_.attempt) return leave(job);
  AttemptUpdate update;
  update.job_uid = job_.uid;
  update.attempt = job_.attempt;
  update.move = move_after(end, *job);
  if ((update.move->worker_lost || !end.attached) && !end.output_tail.empty()) {
    v1::Event event;
    event.mutable_log()->set_level(v1::LogLine::ERROR);
    event.mutable_log()->set_text("the worker's last output:\n" +
                                  options_.paths.hide(printable(end.output_tail)));
    update.events.push_back(std::move(event));
  }
  spdlog::warn("event=attempt_ended {} attempt={} {} {}", kv("job", job_.name()), job_.attempt,
               kv("reason", update.move->reason), kv("message", update.move->message));
  store_.jobs().update_attempt(std::move(update), [this, ending](const Result<Job>& stored) {
    supervisor_.in_background([this, ending, stored] { leave(stored); });
  });
}

void TrainTask::leave(const Result<Job>& job) {
  if (!job.ok() && job.error().reason != "ATTEMPT_FENCED" &&
      job.error().reason != "JOB_NOT_FOUND") {
    // The store does not accept writes. After its next start, the daemon returns the job to the
    // queue.
    spdlog::error("event=attempt_end_not_stored {} {}", kv("job", job_.name()),
                  kv("message", job.error().message));
  } else if (job.ok() && is_terminal(job->state)) {
    tidy_ended_job(options_.paths, job_.uid, job->state == JobState::kSucceeded);
  } else {
    std::error_code ec;
    std::filesystem::remove(options_.paths.spool(job_.uid, job_.attempt), ec);
  }
  gone_(doubts_device());
}

}  // namespace trainyard::server
