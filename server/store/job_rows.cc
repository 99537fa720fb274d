#include "server/store/job_rows.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>

#include "server/store/dependencies.h"
#include "server/store/event_rows.h"
#include "server/store/proto_time.h"
#include "server/store/remaining.h"
#include "src/base/check.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

// clang-format off
#define JOB_COLUMNS \
  "number, project, id, uid, spec, state, reason, message, priority, cancel_requested, attempt, device, " \
  "create_time_us, start_time_us, end_time_us, plan, progress, checkpoint_step, model, newest_seq, " \
  "event_time_us, workers_lost, retry_time_us, more_devices, attempts_uncounted, " \
  "pause_requested, origin, owner, run_time_us, running_since_us, waits_for, events_thinned, array, " \
  "array_index, array_values"
// clang-format on

// Parses a stored message. Throws SqliteError if it does not parse, because the store is damaged
// then.
template <typename Message>
Message parse(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    throw SqliteError(SQLITE_CORRUPT, 0, "a blob is not a " + message.GetTypeName());
  return message;
}

std::vector<std::string> devices_of(std::string first, std::string more) {
  std::vector<std::string> devices;
  if (!first.empty()) devices.push_back(std::move(first));
  std::istringstream rest(std::move(more));
  for (std::string device; rest >> device;) devices.push_back(device);
  return devices;
}

Job read_job(const Query& row) {
  Job job;
  int c = 0;
  job.order = row.integer(c++);
  job.project = row.text(c++);
  job.id = row.text(c++);
  job.uid = row.text(c++);
  job.spec = parse<v1::JobSpec>(row.bytes(c++));
  job.state = static_cast<JobState>(row.integer(c++));
  job.reason = row.text(c++);
  job.message = row.text(c++);
  job.priority = static_cast<int32_t>(row.integer(c++));
  job.cancel_requested = row.integer(c++) != 0;
  job.attempt = static_cast<int32_t>(row.integer(c++));
  std::string first_device = row.text(c++);
  job.create_time_us = row.integer(c++);
  job.start_time_us = row.integer(c++);
  job.end_time_us = row.integer(c++);
  job.plan = parse<v1::RunPlan>(row.bytes(c++));
  job.progress = parse<v1::Progress>(row.bytes(c++));
  job.checkpoint_step = row.integer(c++);
  job.model = row.text(c++);
  job.newest_seq = row.integer(c++);
  job.event_time_us = row.integer(c++);
  job.workers_lost = static_cast<int32_t>(row.integer(c++));
  job.retry_time_us = row.integer(c++);
  job.devices = devices_of(std::move(first_device), row.text(c++));
  job.attempts_uncounted = static_cast<int32_t>(row.integer(c++));
  job.pause_requested = row.integer(c++) != 0;
  job.origin = parse<v1::JobOrigin>(row.bytes(c++));
  job.owner = row.text(c++);
  job.run_time_us = row.integer(c++);
  job.running_since_us = row.integer(c++);
  job.waits_for = static_cast<int32_t>(row.integer(c++));
  job.events_thinned = static_cast<EventsThinned>(row.integer(c++));
  job.array = row.integer(c++);
  job.array_index = static_cast<int32_t>(row.integer(c++));
  job.array_values = parse<v1::ArrayMember>(row.bytes(c++));
  return job;
}

std::string paused_message(const Job& job) {
  return job.checkpoint_step > 0
             ? "Paused on request; it will continue from the checkpoint of step " +
                   std::to_string(job.checkpoint_step) + "."
             : "Paused on request before its first checkpoint.";
}

/// Returns the move to FAILED of a job that would return to the queue although it has reached its
/// time limit.
Move out_of_time(const Job& job) {
  Move move;
  move.to = JobState::kFailed;
  move.reason = "TIME_LIMIT_REACHED";
  move.message =
      "It has trained for " + std::to_string(job.run_time_us / 1'000'000) + " s, of at most " +
      std::to_string(job.spec.resources().time_limit_seconds()) +
      " s (resources.time_limit_seconds). " +
      (job.checkpoint_step > 0 ? "A retry continues from the checkpoint of step " +
                                     std::to_string(job.checkpoint_step) +
                                     ", with the same time again; a fork may have another limit."
                               : "It has no checkpoint: a retry starts over.");
  return move;
}

bool is_out_of_time(const Job& job) {
  const v1::Resources& resources = job.spec.resources();
  return resources.has_time_limit_seconds() &&
         job.run_time_us / 1'000'000 >= resources.time_limit_seconds();
}

Error job_not_found(std::string_view name) {
  return make_error(ErrorCode::kNotFound, "JOB_NOT_FOUND",
                    "there is no job " + quoted_value(name.substr(name.rfind('/') + 1)) + ".");
}

}  // namespace

std::optional<Job> find_job(Connection& db, std::string_view project, std::string_view id) {
  Query query(db, "SELECT " JOB_COLUMNS " FROM jobs WHERE project = ? AND id = ?");
  query.bind(project).bind(id);
  if (!query.step()) return std::nullopt;
  return read_job(query);
}

std::optional<Job> find_job_uid(Connection& db, std::string_view uid) {
  Query query(db, "SELECT " JOB_COLUMNS " FROM jobs WHERE uid = ?");
  query.bind(uid);
  if (!query.step()) return std::nullopt;
  return read_job(query);
}

Result<Job> get_job(Connection& db, std::string_view project, std::string_view id) {
  if (std::optional<Job> job = find_job(db, project, id)) return std::move(*job);
  return job_not_found("projects/" + std::string(project) + "/jobs/" + std::string(id));
}

Result<Job> get_job_uid(Connection& db, std::string_view uid) {
  if (std::optional<Job> job = find_job_uid(db, uid)) return std::move(*job);
  return job_not_found("with uid " + std::string(uid));
}

std::vector<Job> read_active_jobs(Connection& db) {
  static_assert(is_active(JobState::kStarting) && is_active(JobState::kRunning));
  Query query(db, "SELECT " JOB_COLUMNS
                  " FROM jobs INDEXED BY jobs_by_state WHERE state IN (2, 3) ORDER BY number");
  std::vector<Job> jobs;
  while (query.step()) jobs.push_back(read_job(query));
  return jobs;
}

void read_unfinished_jobs(Connection& db, const std::function<void(JobBrief)>& take) {
  Query query(
      db,
      "SELECT number, uid, spec, state, priority, cancel_requested, device, more_devices,"
      " workers_lost, retry_time_us, owner, waits_for, run_time_us, running_since_us, id, plan,"
      " progress, event_time_us, checkpoint_step, project"
      " FROM jobs INDEXED BY jobs_by_state WHERE state < 5");
  while (query.step()) {
    JobBrief brief;
    brief.order = query.integer(0);
    brief.uid = query.text(1);
    const auto spec = parse<v1::JobSpec>(query.bytes(2));
    brief.resources = spec.resources();
    brief.bf16 = spec.recipe().precision() == v1::Recipe::BF16;
    brief.state = static_cast<JobState>(query.integer(3));
    brief.priority = static_cast<int32_t>(query.integer(4));
    brief.cancel_requested = query.integer(5) != 0;
    brief.devices = devices_of(query.text(6), query.text(7));
    brief.workers_lost = static_cast<int32_t>(query.integer(8));
    brief.retry_time_us = query.integer(9);
    brief.owner = query.text(10);
    brief.waits_for = static_cast<int32_t>(query.integer(11));
    brief.run_time_us = query.integer(12);
    brief.running_since_us = query.integer(13);
    brief.id = query.text(14);
    set_needs(parse<v1::RunPlan>(query.bytes(15)), parse<v1::Progress>(query.bytes(16)),
              query.integer(18), brief);
    brief.time_us = query.integer(17);
    brief.project = query.text(19);
    take(std::move(brief));
  }
}

Job get_job_numbered(Connection& db, int64_t order) {
  Query query(db, "SELECT " JOB_COLUMNS " FROM jobs WHERE number = ?");
  query.bind(order);
  if (!query.step()) throw SqliteError(SQLITE_CORRUPT, 0, "there is no job with this number");
  return read_job(query);
}

namespace {

/// Returns whether the job has all of these labels. Labels have no index, because only users filter
/// by them, and programs look jobs up by name. A spec is parsed only if it contains the bytes of
/// every value.
bool has_labels(Connection& db, int64_t number, const Labels& labels) {
  if (labels.empty()) return true;
  Query query(db, "SELECT spec FROM jobs WHERE number = ?");
  query.bind(number);
  if (!query.step()) return false;
  const std::string_view bytes = query.bytes(0);
  for (const auto& [key, value] : labels) {
    if (bytes.find(value) == bytes.npos) return false;
  }
  const auto spec = parse<v1::JobSpec>(bytes);
  return std::ranges::all_of(labels, [&](const auto& label) {
    const auto found = spec.labels().find(label.first);
    return found != spec.labels().end() && found->second == label.second;
  });
}

}  // namespace

std::vector<Job> read_jobs(Connection& db, const JobRange& range) {
  // The index orders jobs within one state and project, separately for members of arrays and other
  // jobs. So this reads the newest of each part, sorts them and keeps the newest of all.
  std::vector<int64_t> numbers;
  const auto take = [&](Query& query) {
    constexpr int64_t kNoLimit = -1;
    query.bind(range.before).bind(range.labels.empty() ? range.count_max : kNoLimit);
    for (int64_t found = 0; found < range.count_max && query.step();) {
      if (!has_labels(db, query.integer(0), range.labels)) continue;
      numbers.push_back(query.integer(0));
      ++found;
    }
  };
  const auto take_part = [&](JobState state, const std::string& project, int64_t member) {
    if (range.owner) {
      Query query(db,
                  "SELECT number FROM jobs INDEXED BY jobs_by_owner WHERE owner = ? AND state = ?"
                  " AND project = ? AND (array > 0) = ? AND number < ?"
                  " ORDER BY number DESC LIMIT ?");
      query.bind(*range.owner).bind(static_cast<int64_t>(state)).bind(project).bind(member);
      return take(query);
    }
    Query query(db,
                "SELECT number FROM jobs INDEXED BY jobs_by_state WHERE state = ? AND project = ?"
                " AND (array > 0) = ? AND number < ? ORDER BY number DESC LIMIT ?");
    query.bind(static_cast<int64_t>(state)).bind(project).bind(member);
    take(query);
  };
  for (const JobState state : range.states) {
    if (range.array > 0) {
      Query query(db,
                  "SELECT number FROM jobs INDEXED BY jobs_by_array WHERE array = ? AND array > 0"
                  " AND state = ? AND number < ? ORDER BY number DESC LIMIT ?");
      query.bind(range.array).bind(static_cast<int64_t>(state));
      take(query);
      continue;
    }
    for (const std::string& project : range.projects) {
      for (int64_t member = 0; member <= (range.no_members ? 0 : 1); ++member) {
        take_part(state, project, member);
      }
    }
  }
  std::ranges::sort(numbers, std::greater());
  if (std::ssize(numbers) > range.count_max) numbers.resize(static_cast<size_t>(range.count_max));
  std::vector<Job> jobs;
  for (const int64_t number : numbers) {
    Query query(db, "SELECT " JOB_COLUMNS " FROM jobs WHERE number = ?");
    query.bind(number);
    if (query.step()) jobs.push_back(read_job(query));
  }
  return jobs;
}

void insert_job(Connection& db, Job& job, const NewJob& asked) {
  Query query(
      db,
      "INSERT INTO jobs (project, id, uid, dataset, spec, state, reason, message, priority,"
      " cancel_requested, attempt, device, create_time_us, start_time_us, end_time_us, plan,"
      " progress, checkpoint_step, model, newest_seq, event_time_us, workers_lost,"
      " retry_time_us, initial_model, dataset_version, origin, owner, waits_for, dataset_project,"
      " initial_model_project)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '', ?, 0, 0, ?, ?, ?, '', 1, ?, 0, 0, ?, ?, ?,"
      " ?, ?, ?, ?)");
  query.bind(job.project).bind(job.id).bind(job.uid).bind(asked.dataset.id);
  query.bind_blob(job.spec.SerializeAsString()).bind(static_cast<int64_t>(job.state));
  query.bind(job.reason).bind(job.message).bind(int64_t{job.priority}).bind(job.create_time_us);
  query.bind_blob(job.plan.SerializeAsString()).bind_blob(job.progress.SerializeAsString());
  query.bind(job.checkpoint_step).bind(job.event_time_us);
  query.bind(asked.initial_model_id).bind(int64_t{asked.dataset.version});
  query.bind_blob(job.origin.SerializeAsString()).bind(job.owner);
  query.bind(int64_t{job.waits_for}).bind(asked.dataset_project);
  query.bind(asked.initial_model_project).run();
  job.order = db.last_row();
}

void save_job(Connection& db, const Job& job) {
  const std::string first = job.device();
  std::string more;
  for (size_t i = 1; i < job.devices.size(); ++i) more += (i > 1 ? " " : "") + job.devices[i];
  Query query(
      db,
      "UPDATE jobs SET state = ?, reason = ?, message = ?, priority = ?, cancel_requested = ?,"
      " attempt = ?, device = ?, start_time_us = ?, end_time_us = ?, plan = ?, progress = ?,"
      " checkpoint_step = ?, model = ?, newest_seq = ?, event_time_us = ?,"
      " workers_lost = ?, retry_time_us = ?, more_devices = ?, attempts_uncounted = ?,"
      " pause_requested = ?, run_time_us = ?, running_since_us = ?, waits_for = ?"
      " WHERE number = ?");
  query.bind(static_cast<int64_t>(job.state)).bind(job.reason).bind(job.message);
  query.bind(int64_t{job.priority})
      .bind(int64_t{job.cancel_requested})
      .bind(int64_t{job.attempt})
      .bind(first);
  query.bind(job.start_time_us).bind(job.end_time_us).bind_blob(job.plan.SerializeAsString());
  query.bind_blob(job.progress.SerializeAsString()).bind(job.checkpoint_step).bind(job.model);
  query.bind(job.newest_seq).bind(job.event_time_us).bind(int64_t{job.workers_lost});
  query.bind(job.retry_time_us).bind(more).bind(int64_t{job.attempts_uncounted});
  query.bind(int64_t{job.pause_requested}).bind(job.run_time_us).bind(job.running_since_us);
  query.bind(int64_t{job.waits_for}).bind(job.order).run();
}

// The wall clock may jump back, but the times of a job's events must not decrease.
int64_t JobEdit::next_event_time_us() const {
  return std::max(context_.now_us, job_.event_time_us);
}

void JobEdit::append(v1::Event event) {
  job_.event_time_us = next_event_time_us();
  event.set_seq(++job_.newest_seq);
  TRAINYARD_CHECK(job_.order > 0, "events belong to a job that is stored");
  *event.mutable_time() = to_timestamp(job_.event_time_us);
  event.set_attempt(job_.attempt);
  insert_event(context_.db, job_.order, std::move(event));
}

void JobEdit::append_state(const Move& move) {
  v1::Event event;
  v1::StateChange& change = *event.mutable_state();
  change.set_state(static_cast<v1::JobState>(job_.state));
  change.set_reason(move.reason);
  change.set_message(move.message);
  change.set_device(job_.device());
  change.mutable_devices()->Add(job_.devices.begin(), job_.devices.end());
  change.set_resumed_from_step(move.resumed_from_step);
  if (job_.state == JobState::kSucceeded) *change.mutable_baselines() = job_.progress.baselines();
  append(std::move(event));
}

void JobEdit::append_log(std::string text) {
  v1::Event event;
  event.mutable_log()->set_level(v1::LogLine::INFO);
  event.mutable_log()->set_text(std::move(text));
  event.mutable_log()->set_from_server(true);
  append(std::move(event));
}

void JobEdit::count_run_time(bool unseen) {
  if (job_.running_since_us == 0) return;
  const int64_t end_us = unseen ? job_.event_time_us : next_event_time_us();
  TRAINYARD_CHECK(end_us >= job_.running_since_us,
                  job_.name() + " ends " + std::to_string(job_.running_since_us - end_us) +
                      " us before it started");
  job_.run_time_us += end_us - job_.running_since_us;
  job_.running_since_us = 0;
}

Status JobEdit::move(const Move& asked) {
  Move move = asked;
  if (can_move(job_.state, move.to)) count_run_time(move.unseen);
  if (move.to == JobState::kQueued && job_.cancel_requested) {
    move = {};
    move.to = JobState::kCancelled;
    move.reason = "CANCELLED";
    move.message = "Cancelled on request.";
  } else if (move.to == JobState::kQueued && is_active(job_.state) && is_out_of_time(job_)) {
    move = out_of_time(job_);
  } else if (move.to == JobState::kQueued && job_.pause_requested) {
    move.to = JobState::kPaused;
    move.reason = "PAUSED";
    move.message = paused_message(job_);
  }
  if (!can_move(job_.state, move.to)) {
    Error e = make_error(ErrorCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                         job_.name() + " is " + std::string(name_of(job_.state)) +
                             " and cannot become " + std::string(name_of(move.to)) + ".");
    e.metadata["state"] = name_of(job_.state);
    return e;
  }
  job_.state = move.to;
  job_.reason = move.reason;
  job_.message = move.message;
  job_.retry_time_us = move.to == JobState::kQueued ? move.retry_time_us : 0;
  if (move.worker_lost) ++job_.workers_lost;
  if (move.uncounted) ++job_.attempts_uncounted;
  if (!is_active(move.to)) job_.pause_requested = false;
  if (move.to == JobState::kRunning) job_.progress.set_step(move.resumed_from_step);
  append_state(move);
  if (move.to == JobState::kRunning) job_.running_since_us = job_.event_time_us;
  if (is_terminal(move.to)) job_.end_time_us = job_.event_time_us;
  return {};
}

void JobEdit::save() {
  TRAINYARD_CHECK(is_terminal(job_.state) == (job_.end_time_us != 0),
                  job_.name() + " is " + std::string(name_of(job_.state)) + " and " +
                      (job_.end_time_us != 0 ? "has an end" : "has no end"));
  TRAINYARD_CHECK(!is_active(job_.state) || !job_.devices.empty(),
                  job_.name() + " is " + std::string(name_of(job_.state)) + " without a device");
  save_job(context_.db, job_);
  notify(job_.state != state_before_ || job_.priority != priority_before_ ||
         job_.waits_for != waits_for_before_);
  if (is_terminal(job_.state) && !is_terminal(state_before_)) note_end(context_, job_);
}

void JobEdit::notify(bool reschedules) {
  JobChange& change = context_.changes.emplace_back();
  change.uid = job_.uid;
  change.newest_seq = job_.newest_seq;
  change.state = job_.state;
  if (reschedules) change.reschedules = brief_of(job_);
  change.saved = checkpoint_step_before_ != job_.checkpoint_step;
  if (job_.state == JobState::kRunning) {
    const Remaining remaining = remaining_of(job_.plan, job_.device(), job_.progress);
    change.remaining_low_s = remaining.low;
    change.remaining_s = remaining.seconds;
    change.remaining_high_s = remaining.high;
  }
  change.time_us = context_.now_us;
  change.cancel_requested = job_.cancel_requested;
  change.pause_requested = job_.pause_requested;
}

std::optional<Attempt> find_attempt_row(Connection& db, const Job& job, int32_t number) {
  Query query(db,
              "SELECT nonce_digest, pid, process_start, device, start_time_us, end_time_us,"
              " outcome, acknowledged, shared, handle FROM attempts WHERE job = ? AND number = ?");
  query.bind(job.order).bind(int64_t{number});
  if (!query.step()) return std::nullopt;
  Attempt attempt;
  attempt.job_uid = job.uid;
  attempt.number = number;
  attempt.nonce_digest = query.text(0);
  attempt.pid = static_cast<int32_t>(query.integer(1));
  attempt.process_start = query.integer(2);
  attempt.device = query.text(3);
  attempt.start_time_us = query.integer(4);
  attempt.end_time_us = query.integer(5);
  attempt.outcome = query.text(6);
  attempt.acknowledged = query.integer(7);
  attempt.shared = query.integer(8) != 0;
  attempt.handle = query.text(9);
  return attempt;
}

void save_handle(Connection& db, const Job& job, int32_t number, const std::string& handle) {
  Query query(db, "UPDATE attempts SET handle = ? WHERE job = ? AND number = ?");
  query.bind(handle).bind(job.order).bind(int64_t{number}).run();
}

void insert_attempt(Connection& db, const Job& job, const Attempt& attempt) {
  Query query(db,
              "INSERT INTO attempts (job, number, nonce_digest, pid, process_start, device,"
              " start_time_us, end_time_us, outcome, acknowledged)"
              " VALUES (?, ?, ?, 0, 0, ?, ?, 0, '', 0)");
  query.bind(job.order).bind(int64_t{attempt.number}).bind(attempt.nonce_digest);
  query.bind(attempt.device).bind(attempt.start_time_us).run();
}

void save_attempt(Connection& db, const Job& job, const Attempt& attempt) {
  Query query(db,
              "UPDATE attempts SET pid = ?, process_start = ?, end_time_us = ?, outcome = ?,"
              " acknowledged = ? WHERE job = ? AND number = ?");
  query.bind(int64_t{attempt.pid}).bind(attempt.process_start).bind(attempt.end_time_us);
  query.bind(attempt.outcome).bind(attempt.acknowledged).bind(job.order);
  query.bind(int64_t{attempt.number}).run();
}

void save_nonce(Connection& db, const Job& job, int32_t number, const std::string& nonce_digest) {
  Query query(db, "UPDATE attempts SET nonce_digest = ? WHERE job = ? AND number = ?");
  query.bind(nonce_digest).bind(job.order).bind(int64_t{number}).run();
}

}  // namespace trainyard::server
