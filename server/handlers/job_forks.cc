// server/handlers/job_forks.cc: jobs created from other jobs: unchanged (retry) or with changes
// (fork), usually from a checkpoint. The files are in place before the job is stored, so every
// acknowledged job finds its checkpoint.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "proto/convert/spec.h"
#include "server/config/log.h"
#include "server/files/removals.h"
#include "server/handlers/job_handlers.h"
#include "server/planning/digest.h"
#include "server/planning/job_planner.h"
#include "server/planning/open_batch.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/store/proto_time.h"
#include "server/store/random_id.h"
#include "src/base/disk_space.h"
#include "src/base/join.h"
#include "src/base/resource_id.h"
#include "src/job/fork.h"

namespace trainyard::server {

namespace {

struct StartPoint {
  v1::JobOrigin origin;
  // The uid of the new job, whose folder contains the checkpoint. Empty if the job starts without a
  // checkpoint or the request only validates.
  std::string uid;
};

/// A request to create a job from another job.
struct DerivedJob {
  const std::string& parent;  // the parent's full name
  const std::string& owner;
  const Rights& rights;  // of the caller
  std::string job_id;
  std::string request_id;
  std::string request_digest;
  const v1::JobSpec* spec = nullptr;  // null: the parent's
  std::optional<int64_t> step = {};   // empty: the newest checkpoint's
  bool from_start = false;
  bool retries = false;
  bool validate_only = false;
};

constexpr int kTriesMax = 5;  // needed if a running job deletes its older checkpoints

Status check_retry(const Job& job, bool from_start) {
  if (!is_terminal(job.state)) {
    return state_conflict(job, job.state == JobState::kPaused
                                   ? "resume it instead, or cancel it first."
                                   : "a job is retried once it has FAILED or was CANCELLED.");
  }
  if (job.state == JobState::kSucceeded && !from_start) {
    return state_conflict(job,
                          "nothing is left to do after its last checkpoint; retry it from the "
                          "start, or fork it with more epochs.");
  }
  return {};
}

bool same_dependencies(const v1::JobSpec& a, const v1::JobSpec& b) {
  return std::ranges::equal(a.after(), b.after(),
                            [](const v1::JobDependency& x, const v1::JobDependency& y) {
                              return x.job() == y.job() && x.on() == y.on();
                            });
}

/// Removes the starting model from the plan of a job that begins at a checkpoint, which contains
/// the model's weights. The model may be deleted then. The parent's report about the model is kept,
/// because it remains true.
void go_without_starting_model(const Job& parent, PlannedJob& planned) {
  planned.initial_model_id.clear();
  planned.initial_model_project.clear();
  planned.plan.clear_initial_weights();
  if (parent.plan.has_initial_weights()) {
    *planned.plan.mutable_initial_weights() = parent.plan.initial_weights();
  }
}

std::string steps_text(const std::vector<CheckpointFolder>& checkpoints) {
  std::vector<std::string> steps;
  for (const CheckpointFolder& c : checkpoints) {
    if (!c.old) steps.push_back(std::to_string(c.step));
  }
  return joined(steps, ", ");
}

/// Returns the checkpoint to begin with: that of `step`, or the newest complete one.
Result<CheckpointFolder> choose(const Job& parent, const std::filesystem::path& folder,
                                std::optional<int64_t> step) {
  const std::vector<CheckpointFolder> checkpoints = list_checkpoints(folder);
  for (const CheckpointFolder& c : checkpoints) {
    if ((!step || c.step == *step) && find_state(c)) return c;
  }
  return make_error(ErrorCode::kNotFound, "CHECKPOINT_NOT_FOUND",
                    checkpoints.empty() ? parent.name() + " has no checkpoint."
                                        : "step: " + parent.name() + " has no checkpoint" +
                                              (step ? " of step " + std::to_string(*step)
                                                    : std::string(" that is intact")) +
                                              ", expected one of " + steps_text(checkpoints) + ".");
}

/// Chooses the checkpoint, checks it against the plan and links it into the new job's folder.
/// Returns NOT_FOUND if the checkpoint was deleted in the meantime.
Result<StartPoint> prepare_start(const JobParts& parts, const DerivedJob& asked, const Job& parent,
                                 const PlannedJob& planned) {
  StartPoint start;
  start.origin.set_job(parent.name());
  start.origin.set_job_uid(parent.uid);
  const std::filesystem::path from = parts.paths.checkpoints(parent.uid);
  if (asked.from_start) return start;
  if (asked.retries && list_checkpoints(from).empty()) {
    // Make sure that the job really has no checkpoint, rather than having just been deleted.
    const Result<Job> now = parts.store.jobs().find_uid(parent.uid);
    if (!now.ok()) return now.error();
    return start;
  }
  ASSIGN_OR_RETURN(const CheckpointFolder checkpoint, choose(parent, from, asked.step));
  ASSIGN_OR_RETURN(EngineSpec engine, to_engine(planned.spec));
  TrainJob run;
  run.model = std::move(engine.model);
  run.recipe = std::move(engine.recipe);
  run.dataset = parts.paths.dataset(planned.dataset_digest);
  ASSIGN_OR_RETURN(const Fork fork, plan_fork(checkpoint, run));
  // A retry after the last step still has to write the model.
  const int64_t total = planned.plan.steps_total();
  if (total < checkpoint.step + (asked.retries ? 0 : 1)) {
    return field_error(
        "FIELD_OUT_OF_RANGE",
        planned.spec.recipe().has_steps() ? "spec.recipe.steps" : "spec.recipe.epochs",
        "the job has " + std::to_string(total) + " steps, expected more than the checkpoint's " +
            std::to_string(checkpoint.step));
  }
  start.origin.set_step(checkpoint.step);
  start.origin.mutable_changes()->Assign(fork.changes.begin(), fork.changes.end());
  if (asked.validate_only) return start;
  start.uid = random_uid(parts.clock.wall_us());
  if (Status s = parts.store.removals().note("jobs/" + start.uid); !s.ok()) return s.error();
  const Result<CheckpointDigests> digests =
      write_fork(parts.files, fork, parts.paths.checkpoints(start.uid));
  if (!digests.ok()) {
    (void)remove_noted(parts.store, parts.files, parts.paths, "jobs/" + start.uid);
    return digests.error();
  }
  start.origin.set_weights_sha256(digests->weights_sha256);
  start.origin.set_optimizer_sha256(digests->optimizer_sha256);
  return start;
}

/// Returns the beginning of the new job's ID: "long-1-r", to which a number is added, for a retry
/// of "long-1" or of its retry "long-1-r2"; for a fork "long-1-f".
std::string id_stem_of(const std::string& parent, bool retries) {
  constexpr size_t kStemCharsMax = kResourceIdCharsMax - 6;  // room for "-r" and a number
  const std::string mark = retries ? "-r" : "-f";
  std::string stem = parent;
  const size_t at = stem.rfind(mark);
  const bool derived = at != std::string::npos && at + mark.size() < stem.size() &&
                       stem.find_first_not_of("0123456789", at + mark.size()) == std::string::npos;
  if (derived) stem.resize(at);
  return stem.substr(0, kStemCharsMax) + mark;
}

/// Returns the job to store. `uid` is that of its folder, empty if it has none yet.
NewJob derived_job(const DerivedJob& asked, const Job& parent, PlannedJob planned,
                   v1::JobOrigin origin, const std::string& uid) {
  NewJob job;
  job.project = parent.project;
  job.id = asked.job_id;
  job.id_stem = id_stem_of(parent.id, asked.retries);
  job.uid = uid;
  job.origin = std::move(origin);
  job.owner = asked.owner;
  job.message =
      (asked.retries ? "A retry of " : "A fork of ") + parent.name() +
      (job.origin.step() > 0 ? " from the checkpoint of step " + std::to_string(job.origin.step())
                             : " from the start") +
      "; it waits for the scheduler.";
  job.spec = std::move(planned.spec);
  job.plan = std::move(planned.plan);
  job.dataset = std::move(planned.dataset);
  job.dataset_project = std::move(planned.dataset_project);
  job.initial_model_id = std::move(planned.initial_model_id);
  job.initial_model_project = std::move(planned.initial_model_project);
  job.after = std::move(planned.after);
  job.request_id = asked.request_id;
  job.request_digest = asked.request_digest;
  return job;
}

Result<v1::Job> create_derived(const JobParts& parts, const DerivedJob& asked,
                               const std::stop_token& stop) {
  if (parts.draining) return draining_error();
  ASSIGN_OR_RETURN(const ResourceName parent_name,
                   parse_name(Collection::kJobs, "name", asked.parent));
  const std::string& project = parent_name.project;  // also the new job's
  if (!asked.job_id.empty()) {
    if (Status s = check_id(Collection::kJobs, "job_id", asked.job_id); !s.ok()) return s.error();
  }
  if (Status s = check_request_id(asked.request_id); !s.ok()) return s.error();
  JobStore& jobs = parts.store.jobs();
  if (!asked.request_id.empty()) {
    ASSIGN_OR_RETURN(const std::optional<Job> first,
                     jobs.find_request({project, asked.request_id, asked.request_digest}));
    if (first) return to_proto(*first);
  }
  ASSIGN_OR_RETURN(const Job parent, jobs.find(project, parent_name.id));
  if (asked.retries) {
    if (Status s = check_retry(parent, asked.from_start); !s.ok()) return s.error();
  }
  v1::JobSpec spec = asked.spec != nullptr ? *asked.spec : parent.spec;
  const std::string priority =
      asked.spec != nullptr ? "spec.priority" : "priority of " + parent.name();
  if (Status s = asked.rights.check_priority(priority, spec.priority()); !s.ok()) return s.error();
  keep_batch_size(parent.spec, spec);
  // If the parent has started, or could have, the jobs that it waited for have ended and may have
  // been deleted. The new job does not wait for them again.
  const bool had_it =
      parent.attempt > 0 || (parent.waits_for == 0 && parent.reason != kDependencyFailed);
  if (had_it && same_dependencies(spec, parent.spec)) spec.clear_after();
  ASSIGN_OR_RETURN(PlannedJob planned,
                   parts.planner.plan(project, spec, stop, StartingWeights::kMayBeGone));
  Result<StartPoint> start = prepare_start(parts, asked, parent, planned);
  for (int tries = 1;
       tries < kTriesMax && !start.ok() && start.error().code == ErrorCode::kNotFound; ++tries) {
    start = prepare_start(parts, asked, parent, planned);
  }
  if (!start.ok()) {
    Error e = start.error();
    e.message = parts.paths.hide(std::move(e.message));
    return e;
  }
  if (start->origin.step() > 0) {
    go_without_starting_model(parent, planned);
  } else if (planned.lacks_weights) {
    return *planned.lacks_weights;
  }
  if (asked.validate_only) {
    v1::Job out;
    if (!asked.job_id.empty()) {
      out.set_name(full_name(project, Collection::kJobs, asked.job_id));
    }
    *out.mutable_spec() = std::move(planned.spec);
    *out.mutable_plan() = std::move(planned.plan);
    *out.mutable_origin() = std::move(start->origin);
    return out;
  }
  NewJob job = derived_job(asked, parent, std::move(planned), std::move(start->origin), start->uid);
  if (Status room = parts.disk.check(); !room.ok()) job.refusal = room.error();
  const Result<Job> stored = jobs.submit(std::move(job));
  if (!start->uid.empty() && (!stored.ok() || stored->uid != start->uid)) {
    (void)remove_noted(parts.store, parts.files, parts.paths, "jobs/" + start->uid);
  }
  if (!stored.ok()) return stored.error();
  spdlog::info("event={} {} uid={} {} step={} {}", asked.retries ? "job_retried" : "job_forked",
               kv("job", stored->name()), stored->uid, kv("parent", parent.name()),
               stored->origin.step(), kv("owner", stored->owner));
  return to_proto(*stored);
}

Result<v1::Job> retry_job(const JobParts& parts, const v1::RetryJobRequest& request,
                          const CallInfo& call) {
  DerivedJob asked{request.name(),       call.principal.person,
                   call.rights,          request.job_id(),
                   request.request_id(), digest_of_request(request, call.principal.person)};
  asked.from_start = request.from_start();
  asked.retries = true;
  return create_derived(parts, asked, call.stop);
}

Result<v1::Job> fork_job(const JobParts& parts, const v1::ForkJobRequest& request,
                         const CallInfo& call) {
  if (request.has_step() && request.step() < 1) {
    return field_error("FIELD_OUT_OF_RANGE", "step",
                       std::to_string(request.step()) + " is out of range, expected at least 1");
  }
  DerivedJob asked{request.name(),       call.principal.person,
                   call.rights,          request.job_id(),
                   request.request_id(), digest_of_request(request, call.principal.person)};
  if (request.has_spec()) asked.spec = &request.spec();
  if (request.has_step()) asked.step = request.step();
  asked.validate_only = request.validate_only();
  return create_derived(parts, asked, call.stop);
}

Result<v1::ListCheckpointsResponse> list_job_checkpoints(
    const JobParts& parts, const v1::ListCheckpointsRequest& request) {
  ASSIGN_OR_RETURN(const ResourceName name, parse_name(Collection::kJobs, "name", request.name()));
  ASSIGN_OR_RETURN(const Job job, parts.store.jobs().find(name.project, name.id));
  v1::ListCheckpointsResponse response;
  for (const CheckpointFolder& c : list_checkpoints(parts.paths.checkpoints(job.uid))) {
    if (c.old || !find_state(c)) continue;
    v1::Checkpoint& listed = *response.add_checkpoints();
    listed.set_step(c.step);
    listed.set_size_bytes(bytes_below(c.path));
    struct stat st {};
    if (::stat((c.path / "state.json").c_str(), &st) == 0) {
      *listed.mutable_create_time() =
          to_timestamp(int64_t{st.st_mtim.tv_sec} * 1'000'000 + st.st_mtim.tv_nsec / 1000);
    }
  }
  return response;
}

}  // namespace

void add_fork_rows(Methods& rows, const JobParts& parts, Executor& planning) {
  rows.add("RetryJob", parts, &retry_job, planning);
  rows.add("ForkJob", parts, &fork_job, planning);
  rows.add("ListCheckpoints", parts, &list_job_checkpoints);
}

}  // namespace trainyard::server
