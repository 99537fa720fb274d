// Changes of jobs: the commands that run inside the writer's transaction.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "server/store/dependencies.h"
#include "server/store/forecast_store.h"
#include "server/store/job_rows.h"
#include "server/store/job_steering.h"
#include "server/store/job_store.h"
#include "server/store/quota_rows.h"
#include "server/store/random_id.h"
#include "server/store/remaining.h"
#include "server/store/removals.h"
#include "server/store/store_core.h"
#include "server/store/submit_checks.h"
#include "server/store/usage_books.h"
#include "src/base/check.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

// These metrics describe the run and are not stored with its model.
constexpr const char* kForecastShare = "system/forecast_share";
constexpr const char* kBoundShare = "system/bound_share";

// Returns the job created by an earlier request with this ID, or its error; nothing for a new ID.
std::optional<Result<Job>> find_request_job(Connection& db, const RequestId& request) {
  const Result<std::optional<std::string>> uid = find_request_uid(db, request);
  if (!uid.ok()) return uid.error();
  if (!*uid) return std::nullopt;
  if (std::optional<Job> first = find_job_uid(db, **uid)) return std::move(*first);
  return make_error(ErrorCode::kNotFound, "JOB_NOT_FOUND",
                    "request_id: the job that this request created has been deleted.");
}

Result<Job> submit_job(WriteContext& context, const NewJob& asked, int64_t queued_jobs_max) {
  Connection& db = context.db;
  if (!asked.request_id.empty()) {
    forget_old_requests(db, context.now_us);
    if (auto answer =
            find_request_job(db, {asked.project, asked.request_id, asked.request_digest})) {
      return std::move(*answer);
    }
  }
  if (asked.refusal) return *asked.refusal;
  Job job;
  job.project = asked.project;
  job.id = asked.id;
  if (job.id.empty() && !asked.id_stem.empty()) {
    job.id = free_job_id(db, job.project, asked.id_stem, context.now_us);
  } else if (job.id.empty()) {
    do job.id = random_job_id(context.now_us);
    while (job_id_taken(db, job.project, job.id));
  } else if (job_id_taken(db, job.project, job.id)) {
    return make_error(ErrorCode::kAlreadyExists, "JOB_EXISTS",
                      "job_id: " + quoted_value(job.id) + " " +
                          who_has_job_id(db, job.project, job.id) + "; choose another, such as " +
                          similar_free_job_id(db, job.project, job.id, context.now_us) +
                          ", or leave it out.");
  }
  if (Status s = check_quota(db, job.project, queued_jobs_max); !s.ok()) return s.error();
  if (!asked.dataset.id.empty()) {
    if (Status s = check_dataset(db, job.project, asked.dataset_project, asked.dataset); !s.ok()) {
      return s.error();
    }
  }
  ASSIGN_OR_RETURN(const std::vector<Awaited> awaited, find_awaited(db, asked));
  if (Status ok = check_initial_model(db, job.project, asked.initial_model_project,
                                      asked.initial_model_id, awaited);
      !ok.ok()) {
    return ok.error();
  }

  job.uid = asked.uid.empty() ? random_uid(context.now_us) : asked.uid;
  job.origin = asked.origin;
  job.checkpoint_step = asked.origin.step();
  job.progress.set_step(asked.origin.step());
  job.spec = asked.spec;
  job.plan = asked.plan;
  job.priority = asked.spec.priority();
  job.create_time_us = context.now_us;
  job.event_time_us = context.now_us;
  job.reason = asked.reason;
  job.message = asked.message;
  job.owner = asked.owner;
  job.waits_for = static_cast<int32_t>(awaited.size());
  if (!awaited.empty()) {
    job.reason = kWaitingForJob;
    job.message = waiting_message(awaited.front(), job.waits_for);
  }
  if (Status s = check_submit_quotas(db, job.project, job.owner, 1, needs_of(brief_of(job)));
      !s.ok()) {
    return s.error();
  }
  insert_job(db, job, asked);
  insert_dependencies(db, job.order, awaited);
  // its files were created before its row
  if (!asked.uid.empty()) forget_removal(db, "jobs/" + job.uid);
  keep_request(db, {asked.project, asked.request_id, asked.request_digest}, job.uid,
               context.now_us);
  JobEdit edit(context, job);
  Move queued;
  queued.reason = job.reason;
  queued.message = job.message;
  edit.append_state(queued);
  edit.notify(/*reschedules=*/true);
  return job;
}

// Ends the live attempt in the transaction that ends the job's active state. The attempt has used
// its devices until `used_until_us`.
void end_attempt(WriteContext& context, const Job& job, Attempt& attempt, int64_t used_until_us) {
  TRAINYARD_CHECK(attempt.end_time_us == 0 && !is_active(job.state),
                  "an attempt of " + job.name() + " ends twice, or before its job's state changed");
  attempt.end_time_us = job.event_time_us;
  attempt.outcome = job.reason;
  save_attempt(context.db, job, attempt);
  settle_use(context.db, job, attempt.number, used_until_us);
}

Error fenced(const Job& job, int32_t number) {
  Error e = make_error(ErrorCode::kAborted, "ATTEMPT_FENCED",
                       "attempt " + std::to_string(number) + " of " + job.name() +
                           " is over: its reports are rejected.");
  e.metadata["attempt"] = std::to_string(job.attempt);
  return e;
}

Error enrolment_spent(const Job& job, int32_t number) {
  return make_error(ErrorCode::kPermissionDenied, "ENROLMENT_USED",
                    "attempt " + std::to_string(number) + " of " + job.name() +
                        " already has a worker: its secret is valid for one worker only");
}

// Returns attempt `number` if it is the job's newest attempt; otherwise the error for a stale
// attempt.
Result<Attempt> get_attempt(Connection& db, const Job& job, int32_t number) {
  std::optional<Attempt> attempt;
  if (number == job.attempt) attempt = find_attempt_row(db, job, number);
  if (!attempt) return fenced(job, number);
  return std::move(*attempt);
}

Status check_number(const Attempt& attempt, int64_t report_number) {
  if (report_number == 0 || report_number == attempt.acknowledged + 1) return {};
  Error e = make_error(ErrorCode::kOutOfRange, "REPORT_GAP",
                       "report " + std::to_string(report_number) + " after " +
                           std::to_string(attempt.acknowledged) +
                           ": reports are numbered without a gap.");
  e.metadata["acknowledged"] = std::to_string(attempt.acknowledged);
  return e;
}

// A worker's reports are untrusted: all stored data that grows with them is bounded. Metrics with
// keys beyond the bound appear only in the events.
void set_metric(Job& job, const std::string& key, double value) {
  auto& metrics = *job.progress.mutable_metrics();
  if (metrics.contains(key) || metrics.size() < kMetricKeysMax) metrics[key] = value;
}

// Updates the job's own fields from a worker's event.
void note_event(Job& job, const v1::Event& event) {
  if (event.has_checkpoint() && event.checkpoint().error().empty()) {
    // the job made progress
    if (event.checkpoint().step() > job.checkpoint_step) job.workers_lost = 0;
    job.checkpoint_step = event.checkpoint().step();
  }
  for (const v1::MetricSeries& series : event.metrics().series()) {
    const int last = std::min(series.steps_size(), series.values_size()) - 1;
    if (last < 0) continue;
    double value = series.values(last);
    for (const v1::NonFinite& mark : series.non_finite()) {
      if (mark.index() != last) continue;
      const double infinity = std::numeric_limits<double>::infinity();
      value = mark.kind() == v1::NonFinite::POSITIVE_INFINITY ? infinity
              : mark.kind() == v1::NonFinite::NEGATIVE_INFINITY
                  ? -infinity
                  : std::numeric_limits<double>::quiet_NaN();
    }
    set_metric(job, series.key(), value);
    if (series.steps(last) > job.progress.step()) job.progress.set_step(series.steps(last));
  }
}

/// Records the speed of the run relative to its forecast and to its device's bound as metrics, once
/// it is known and whenever it has changed by more than 2 %.
void note_pace(Job& job, JobEdit& edit) {
  constexpr double kSame = 0.02;
  if (job.progress.step() <= 0) return;
  const Remaining pace = remaining_of(job.plan, job.device(), job.progress);
  v1::Event event;
  const auto add = [&](const char* key, double share) {
    const auto before = job.progress.metrics().find(key);
    const bool same = before != job.progress.metrics().end() &&
                      std::abs(share - before->second) <= kSame * before->second;
    if (share <= 0 || same) return;
    v1::MetricSeries& series = *event.mutable_metrics()->add_series();
    series.set_key(key);
    series.add_steps(job.progress.step());
    series.add_values(share);
  };
  add(kForecastShare, pace.forecast_share);
  add(kBoundShare, pace.bound_share);
  if (!event.has_metrics()) return;
  note_event(job, event);
  edit.append(event);
}

void insert_model(WriteContext& context, Job& job, const NewModel& model) {
  v1::Progress metrics;
  *metrics.mutable_metrics() = job.progress.metrics();
  for (const char* key : {kForecastShare, kBoundShare}) metrics.mutable_metrics()->erase(key);
  v1::Model blob;
  blob.mutable_tensors()->Add(model.tensors.begin(), model.tensors.end());
  Query query(context.db,
              "INSERT INTO models (project, id, job_uid, digest, size_bytes, parameter_count,"
              " metrics, schema, create_time_us, tensor_count, tensors, dataset, owner)"
              " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  query.bind(job.project).bind(job.id).bind(job.uid).bind(model.digest).bind(model.size_bytes);
  query.bind(model.parameter_count).bind_blob(metrics.SerializeAsString());
  query.bind_blob(model.schema.SerializeAsString()).bind(context.now_us);
  query.bind(std::ssize(model.tensors)).bind_blob(blob.SerializeAsString());
  query.bind(job.spec.dataset().name()).bind(job.owner).run();
  job.model = job.id;
}

Result<Job> apply_update(WriteContext& context, const AttemptUpdate& update) {
  ASSIGN_OR_RETURN(Job job, get_job_uid(context.db, update.job_uid));
  ASSIGN_OR_RETURN(Attempt attempt, get_attempt(context.db, job, update.attempt));
  const int64_t number = update.report_number;
  if (number > 0 && number <= attempt.acknowledged) return job;  // a repeated report
  if (attempt.end_time_us != 0) return fenced(job, update.attempt);
  if (Status s = check_number(attempt, number); !s.ok()) return s.error();
  if (update.model && (!update.move || update.move->to != JobState::kSucceeded))
    return make_error(ErrorCode::kInternal, "INTERNAL", "only a SUCCEEDED job has a model");

  const int64_t seen_us = job.event_time_us;  // the worker was alive at this time
  JobEdit edit(context, job);
  if (update.plan) {
    v1::RunPlan before = std::exchange(job.plan, *update.plan);
    // Keeps the forecasts from submission, because the outcome is compared with them.
    job.plan.mutable_forecasts()->Swap(before.mutable_forecasts());
    // A resumed attempt starts from its checkpoint, so the report of the first attempt about
    // initial weights is kept.
    if (before.has_initial_weights() && !job.plan.has_initial_weights()) {
      *job.plan.mutable_initial_weights() = before.initial_weights();
    }
    // The fit choice is made at submission and never changes; workers read it from the spec.
    if (before.has_fit_choice()) *job.plan.mutable_fit_choice() = before.fit_choice();
    job.progress.set_steps_total(job.plan.steps_total());
    job.progress.set_steps_per_epoch(job.plan.steps_per_epoch());
  }
  // A move to RUNNING is stored before the update's events, and the end of the attempt after them.
  const bool begins = update.move && update.move->to == JobState::kRunning;
  if (begins)
    if (Status s = edit.move(*update.move); !s.ok()) return s.error();
  if (update.step) job.progress.set_step(*update.step);
  if (update.samples_per_second) job.progress.set_samples_per_second(*update.samples_per_second);
  if (update.times) *job.progress.mutable_times() = *update.times;
  for (const v1::Event& event : update.events) {
    note_event(job, event);
    edit.append(event);
  }
  if (update.times && !update.move) note_pace(job, edit);
  for (const auto& [key, value] : update.final_metrics) set_metric(job, key, value);
  for (const v1::ConfusionMatrix& matrix : update.confusion_matrices) {
    *job.progress.add_confusion_matrices() = matrix;
  }
  for (const v1::Baseline& baseline : update.baselines) *job.progress.add_baselines() = baseline;
  for (const std::string& warning : update.warnings) job.progress.add_warnings(warning);
  if (number > 0) attempt.acknowledged = number;
  if (update.move && !begins) {
    if (Status s = edit.move(*update.move); !s.ok()) return s.error();
    if (update.model) insert_model(context, job, *update.model);
    if (update.move->to == JobState::kSucceeded) {
      note_outcome(context.db, job, update.node, context.now_us);
    }
    end_attempt(context, job, attempt, update.move->unseen ? seen_us : job.event_time_us);
  } else if (number > 0) {
    save_attempt(context.db, job, attempt);
  }
  edit.save();
  return job;
}

Result<Job> remove_found(WriteContext& context, Result<Job> found) {
  if (!found.ok()) return found;
  if (Status s = remove_job(context, *found); !s.ok()) return s.error();
  return found;
}

Result<Job> start_job(WriteContext& context, const std::string& uid, Attempt attempt,
                      const std::vector<std::string>& devices, const std::string& reason,
                      const std::string& message, const DevicePrices& prices) {
  ASSIGN_OR_RETURN(Job job, get_job_uid(context.db, uid));
  if (job.state != JobState::kQueued)
    return make_error(ErrorCode::kAborted, "JOB_STATE_CONFLICT",
                      job.name() + " is " + std::string(name_of(job.state)) + " and not QUEUED.");
  TRAINYARD_CHECK(job.waits_for == 0, job.name() + " starts while it waits for " +
                                          std::to_string(job.waits_for) + " jobs");
  const std::optional<Attempt> last = find_attempt_row(context.db, job, job.attempt);
  TRAINYARD_CHECK(!last || last->end_time_us != 0, "an attempt of " + job.name() +
                                                       " starts before attempt " +
                                                       std::to_string(job.attempt) + " has ended");
  JobEdit edit(context, job);
  ++job.attempt;
  job.devices = devices;
  attempt.device = job.device();
  Move move;
  move.to = JobState::kStarting;
  move.reason = reason;
  move.message = message;
  if (Status s = edit.move(move); !s.ok()) return s.error();
  if (job.start_time_us == 0) job.start_time_us = job.event_time_us;
  attempt.number = job.attempt;
  attempt.start_time_us = job.event_time_us;
  insert_attempt(context.db, job, attempt);
  reserve_use(context.db, job, attempt.number, prices);
  edit.save();
  return job;
}

Result<Job> move_job(WriteContext& context, const std::string& uid, const Move& move) {
  ASSIGN_OR_RETURN(Job job, get_job_uid(context.db, uid));
  JobEdit edit(context, job);
  const bool active = is_active(job.state) || move.to == JobState::kStarting;
  if (active || !can_move(job.state, move.to)) {
    Error e =
        make_error(ErrorCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                   job.name() + " is " + std::string(name_of(job.state)) + " and cannot become " +
                       std::string(name_of(move.to)) + " without an attempt.");
    e.metadata["state"] = name_of(job.state);
    return e;
  }
  if (Status s = edit.move(move); !s.ok()) return s.error();
  edit.save();
  return job;
}

}  // namespace

void JobStore::submit(NewJob job, Done<Job> done) {
  core_.change<Job>([job = std::move(job), quota = core_.options.queued_jobs_max](
                        WriteContext& context) { return submit_job(context, job, quota); },
                    std::move(done));
}

Result<std::optional<Job>> JobStore::find_request(const RequestId& request) const {
  return core_.read<std::optional<Job>>([&](Connection& db) -> Result<std::optional<Job>> {
    std::optional<Result<Job>> answer = find_request_job(db, request);
    if (!answer) return std::optional<Job>();
    if (!answer->ok()) return std::move(*answer).error();
    return std::optional<Job>(**std::move(answer));
  });
}

Result<Job> JobStore::remove(const std::string& project, const std::string& id) {
  return core_.change_and_wait<Job>(
      [=](WriteContext& context) {
        return remove_found(context, get_job(context.db, project, id));
      },
      Urgency::kEssential);
}

void JobStore::remove_ended(std::string uid, Done<Job> done) {
  core_.change<Job>(
      [uid = std::move(uid)](WriteContext& context) {
        return remove_found(context, get_job_uid(context.db, uid));
      },
      std::move(done), Urgency::kEssential);
}

Result<Job> JobStore::start_attempt(const std::string& uid, const std::vector<std::string>& devices,
                                    const std::string& nonce_digest, const std::string& reason,
                                    const std::string& message) {
  Attempt attempt;
  attempt.job_uid = uid;
  attempt.nonce_digest = nonce_digest;
  return core_.change_and_wait<Job>([=, this](WriteContext& context) {
    return start_job(context, uid, attempt, devices, reason, message, core_.options.prices);
  });
}

void JobStore::note_shared(std::vector<std::string> uids, Done<void> done) {
  core_.change<void>(
      [uids = std::move(uids)](WriteContext& context) -> Status {
        for (const std::string& uid : uids) {
          Query(context.db,
                "UPDATE attempts SET shared = 1 WHERE end_time_us = 0"
                " AND job = (SELECT number FROM jobs WHERE uid = ?)")
              .bind(uid)
              .run();
        }
        return {};
      },
      std::move(done));
}

void JobStore::set_handle(std::string uid, int32_t number, std::string handle, std::string text,
                          Done<void> done) {
  core_.change<void>(
      [=, uid = std::move(uid)](WriteContext& context) -> Status {
        ASSIGN_OR_RETURN(Job job, get_job_uid(context.db, uid));
        ASSIGN_OR_RETURN(const Attempt attempt, get_attempt(context.db, job, number));
        if (attempt.end_time_us != 0) return fenced(job, number);
        if (attempt.handle == handle) return {};
        save_handle(context.db, job, number, handle);
        JobEdit edit(context, job);
        edit.append_log(text);
        edit.save();
        return {};
      },
      std::move(done));
}

void JobStore::set_process(std::string uid, int32_t attempt_number, int32_t pid,
                           int64_t process_start, Done<void> done) {
  core_.change<void>(
      [=, uid = std::move(uid)](WriteContext& context) -> Status {
        ASSIGN_OR_RETURN(const Job job, get_job_uid(context.db, uid));
        ASSIGN_OR_RETURN(Attempt attempt, get_attempt(context.db, job, attempt_number));
        if (attempt.end_time_us != 0) return fenced(job, attempt_number);
        attempt.pid = pid;
        attempt.process_start = process_start;
        save_attempt(context.db, job, attempt);
        return {};
      },
      std::move(done));
}

void JobStore::set_nonce(std::string uid, int32_t attempt_number, std::string nonce_digest,
                         Done<void> done) {
  core_.change<void>(
      [=, uid = std::move(uid), digest = std::move(nonce_digest)](WriteContext& context) -> Status {
        ASSIGN_OR_RETURN(const Job job, get_job_uid(context.db, uid));
        ASSIGN_OR_RETURN(const Attempt attempt, get_attempt(context.db, job, attempt_number));
        if (attempt.end_time_us != 0) return fenced(job, attempt_number);
        if (attempt.nonce_digest == digest) return {};
        if (!attempt.nonce_digest.empty()) return enrolment_spent(job, attempt_number);
        save_nonce(context.db, job, attempt_number, digest);
        return {};
      },
      std::move(done));
}

void JobStore::update_attempt(AttemptUpdate update, Done<Job> done) {
  // The end of an attempt frees a device, so it must be stored even if the disk is full.
  const bool ends = update.move && update.move->to != JobState::kRunning;
  core_.change<Job>(
      [update = std::move(update)](WriteContext& context) { return apply_update(context, update); },
      std::move(done), ends ? Urgency::kEssential : Urgency::kNormal);
}

void JobStore::move(std::string uid, Move move, Done<Job> done) {
  core_.change<Job>([uid = std::move(uid), move = std::move(move)](
                        WriteContext& context) { return move_job(context, uid, move); },
                    std::move(done), Urgency::kEssential);
}

Result<Job> JobStore::submit(NewJob job) {
  return wait_for<Job>([&](Done<Job> done) { submit(std::move(job), std::move(done)); });
}

}  // namespace trainyard::server
