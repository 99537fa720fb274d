#include "server/handlers/job_handlers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>

#include "proto/convert/spec.h"
#include "server/config/log.h"
#include "server/files/removals.h"
#include "server/handlers/time_range.h"
#include "server/handlers/visibility.h"
#include "server/planning/digest.h"
#include "server/planning/job_planner.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/store/remaining.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr int32_t kQueueDefault = 100;  // jobs in a response
// Stands for all projects that the caller may see, in the parent projects/-.
constexpr const char* kAllProjects = "-";

/// Returns the job that an earlier call with the same request ID and content created, if there is
/// one. A client repeats a call whose response was lost.
Result<std::optional<Job>> find_first(const JobStore& jobs, const std::string& project,
                                      const v1::SubmitJobRequest& request,
                                      const std::string& person) {
  if (request.request_id().empty()) return std::optional<Job>();
  return jobs.find_request({project, request.request_id(), digest_of_request(request, person)});
}

/// Returns the job's project.
Result<std::string> check_submit(const JobParts& parts, const v1::SubmitJobRequest& request,
                                 const CallInfo& call) {
  if (parts.draining) return draining_error();
  ASSIGN_OR_RETURN(std::string project, parse_parent(request.parent()));
  if (!request.job_id().empty()) {
    if (Status s = check_id(Collection::kJobs, "job_id", request.job_id()); !s.ok()) {
      return s.error();
    }
  }
  if (Status s = check_request_id(request.request_id()); !s.ok()) return s.error();
  if (!request.has_spec()) {
    return field_error("FIELD_REQUIRED", "spec", "is missing, expected dataset, model and recipe");
  }
  if (Status s = call.rights.check_priority("spec.priority", request.spec().priority()); !s.ok()) {
    return s.error();
  }
  return project;
}

void store_job(const JobParts& parts, std::string project, const v1::SubmitJobRequest& request,
               const std::string& owner, PlannedJob planned, Done<v1::Job> done) {
  NewJob job;
  job.project = std::move(project);
  job.owner = owner;
  job.id = request.job_id();
  job.spec = std::move(planned.spec);
  job.plan = std::move(planned.plan);
  job.dataset = std::move(planned.dataset);
  job.dataset_project = std::move(planned.dataset_project);
  job.initial_model_id = std::move(planned.initial_model_id);
  job.initial_model_project = std::move(planned.initial_model_project);
  job.after = std::move(planned.after);
  job.request_id = request.request_id();
  if (!request.request_id().empty()) job.request_digest = digest_of_request(request, owner);
  if (Status room = parts.disk.check(); !room.ok()) job.refusal = room.error();
  // No thread waits for the commit, so all concurrent submits can share one.
  parts.store.jobs().submit(std::move(job), [done = std::move(done)](Result<Job> stored) {
    if (!stored.ok()) return done(std::move(stored).error());
    spdlog::info("event=job_submitted {} uid={} priority={} {}", kv("job", stored->name()),
                 stored->uid, stored->priority, kv("owner", stored->owner));
    done(to_proto(*std::move(stored)));
  });
}

/// Plans the job, which may take seconds, and stores it.
void submit_job(const JobParts& parts, const v1::SubmitJobRequest& request, const CallInfo& call,
                Done<v1::Job> done) {
  Result<std::string> project = check_submit(parts, request, call);
  if (!project.ok()) return done(project.error());
  Result<PlannedJob> planned = parts.planner.plan(*project, request.spec(), call.stop);
  if (!planned.ok()) {
    if (request.validate_only()) return done(std::move(planned).error());
    // A repeated request returns its job, even if the spec names something that no longer exists.
    const Result<std::optional<Job>> first =
        find_first(parts.store.jobs(), *project, request, call.principal.person);
    if (!first.ok()) return done(first.error());
    if (!*first) return done(std::move(planned).error());
    return done(to_proto(parts.dispatcher.explained(**first)));
  }
  if (request.validate_only()) {
    v1::Job job;
    if (!request.job_id().empty()) {
      job.set_name(full_name(*project, Collection::kJobs, request.job_id()));
    }
    *job.mutable_spec() = std::move(planned->spec);
    *job.mutable_plan() = std::move(planned->plan);
    return done(std::move(job));
  }
  store_job(parts, *std::move(project), request, call.principal.person, *std::move(planned),
            std::move(done));
}

/// Submits a spec that was just accepted, without planning or waiting. If it returns false, the
/// caller must call submit_job().
bool submit_known_job(const JobParts& parts, const v1::SubmitJobRequest& request,
                      const CallInfo& call, const Done<v1::Job>& done) {
  if (request.validate_only()) return false;
  Result<std::string> project = check_submit(parts, request, call);
  if (!project.ok()) return false;
  const std::shared_ptr<const PlannedJob> known =
      parts.planner.find_accepted(*project, request.spec());
  if (!known) return false;
  store_job(parts, *std::move(project), request, call.principal.person, *known, done);
  return true;
}

void plan_job(const JobParts& parts, const v1::PlanJobRequest& request, const CallInfo& call,
              Done<v1::JobPlan> done) {
  if (parts.draining) return done(draining_error());
  const Result<std::string> project = parse_parent(request.parent());
  if (!project.ok()) return done(project.error());
  if (!request.has_spec()) {
    return done(
        field_error("FIELD_REQUIRED", "spec", "is missing, expected dataset, model and recipe"));
  }
  parts.planner.plan_in_full(*project, request, std::move(done), call.stop);
}

Job shown(const JobParts& parts, Job job) {
  return with_disk_state(parts.dispatcher.explained(std::move(job)), parts.store.is_full());
}

/// Sets the remaining times to those from now on. remaining_of() gives them from the last report
/// on, which may be a while ago.
void count_from_now(const Range& end, int64_t now_us, Remaining& remaining) {
  if (!end.known()) return;
  constexpr double kLeast = 1;  // 0 would mean that the time is unknown
  const auto seconds = [&](int64_t at_us) {
    return std::max(kLeast, static_cast<double>(at_us - now_us) * 1e-6);
  };
  remaining.low = seconds(end.low_us);
  remaining.seconds = seconds(end.likely_us);
  remaining.high = seconds(end.high_us);
}

Result<v1::Job> get_job(const JobParts& parts, const v1::GetJobRequest& request) {
  ASSIGN_OR_RETURN(const ResourceName name, parse_name(Collection::kJobs, "name", request.name()));
  ASSIGN_OR_RETURN(Job job, parts.store.jobs().find(name.project, name.id));
  if (job.state == JobState::kRunning) {
    Remaining remaining = remaining_of(job.plan, job.device(), job.progress,
                                       parts.dispatcher.jobs_sharing_devices(job.uid));
    count_from_now(parts.dispatcher.expected_end(job.uid), parts.clock.wall_us(), remaining);
    job.progress.set_remaining_seconds(remaining.seconds);
    job.progress.set_remaining_seconds_low(remaining.low);
    job.progress.set_remaining_seconds_high(remaining.high);
    job.progress.set_forecast_share(remaining.forecast_share);
    job.progress.set_bound_share(remaining.bound_share);
    job.progress.set_held_back_by(remaining.held_back_by);
  }
  return to_proto(shown(parts, std::move(job)));
}

/// Returns the entry as the caller may see it: of another project's job only its place and times.
v1::QueuedJob to_proto(const QueuedJob& job, const Visibility& visible) {
  v1::QueuedJob to;
  to.set_priority(job.priority);
  to.set_position(job.position);
  if (job.start.known()) *to.mutable_start() = to_proto(job.start);
  if (job.end.known()) *to.mutable_end() = to_proto(job.end);
  to.set_device(job.device);
  to.set_other_project(!visible.sees(job.project));
  if (to.other_project()) return to;
  to.set_name(full_name(job.project, Collection::kJobs, job.id));
  to.set_owner(job.owner);
  to.set_reason(job.why.reason);
  to.set_message(job.why.message);
  return to;
}

Result<v1::ListQueueResponse> list_queue(const JobParts& parts, const v1::ListQueueRequest& request,
                                         const CallInfo& call) {
  if (const Result<std::string> project = parse_parent(request.parent()); !project.ok()) {
    return project.error();
  }
  if (request.page_size() < 0) {
    return field_error("PAGE_SIZE_NEGATIVE", "page_size",
                       std::to_string(request.page_size()) + " is negative, expected 0..1000");
  }
  std::optional<Job> asked;
  if (!request.name().empty()) {
    ASSIGN_OR_RETURN(const ResourceName name,
                     parse_name(Collection::kJobs, "name", request.name()));
    ASSIGN_OR_RETURN(asked, parts.store.jobs().find(name.project, name.id));
  }
  const int32_t count =
      request.page_size() == 0 ? kQueueDefault : std::min(request.page_size(), kPageSizeMax);
  const QueueView view =
      parts.dispatcher.queue(static_cast<size_t>(count), asked ? asked->uid : "");
  v1::ListQueueResponse response;
  response.set_waiting(view.waiting);
  const Visibility visible(parts.people, call.principal);
  for (const QueuedJob& job : view.jobs) *response.add_jobs() = to_proto(job, visible);
  // A job that waits for other jobs is not in the queue yet.
  if (asked && view.jobs.empty() && asked->state == JobState::kQueued) {
    v1::QueuedJob& to = *response.add_jobs();
    to.set_name(asked->name());
    to.set_owner(asked->owner);
    to.set_priority(asked->priority);
    to.set_reason(asked->reason);
    to.set_message(asked->message);
  }
  return response;
}

Result<v1::ListJobsResponse> list_jobs(const JobParts& parts, const v1::ListJobsRequest& request,
                                       const CallInfo& call) {
  ASSIGN_OR_RETURN(const std::string project, parse_parent(request.parent()));
  JobQuery query;
  query.projects = {project};
  if (project == kAllProjects) query.projects = parts.people.projects(call.principal);
  query.page_size = request.page_size();
  query.page_token = request.page_token();
  for (const int state : request.states()) {
    if (state < static_cast<int>(JobState::kQueued) ||
        state > static_cast<int>(JobState::kCancelled)) {
      return field_error("FIELD_UNSUPPORTED", "states",
                         std::to_string(state) + " is not a state, expected 1..7");
    }
    query.states.push_back(static_cast<JobState>(state));
  }
  if (request.mine() && !request.owner().empty()) {
    return field_error("FIELD_CONFLICT", "mine",
                       "cannot be combined with owner, expected one of them");
  }
  if (request.mine()) query.owner = call.principal.person;
  if (!request.owner().empty()) query.owner = request.owner();
  if (!request.array().empty()) {
    if (request.no_members()) {
      return field_error("FIELD_CONFLICT", "no_members",
                         "cannot be combined with array, expected one of them");
    }
    ASSIGN_OR_RETURN(const ResourceName array,
                     parse_id_or_name(Collection::kArrays, project, "array", request.array()));
    if (array.project != project || project == kAllProjects) {
      return field_error("FIELD_CONFLICT", "array",
                         quoted_value(request.array()) +
                             " is not in the project of `parent`, expected both of one project");
    }
    query.array = array.id;
  }
  query.no_members = request.no_members();
  query.labels = {request.labels().begin(), request.labels().end()};
  ASSIGN_OR_RETURN(JobPage page, parts.store.jobs().list(query));
  v1::ListJobsResponse response;
  for (Job& job : page.jobs) {
    v1::Job& listed = *response.add_jobs() = to_proto(shown(parts, std::move(job)));
    // Too large for a list of a thousand jobs.
    listed.mutable_progress()->clear_confusion_matrices();
    listed.mutable_progress()->clear_warnings();
    listed.mutable_plan()->clear_warnings();
    listed.mutable_plan()->clear_initial_weights();
  }
  response.set_next_page_token(page.next_page_token);
  return response;
}

Result<v1::Job> cancel_job(const JobParts& parts, const v1::CancelJobRequest& request,
                           const CallInfo& call) {
  ASSIGN_OR_RETURN(const ResourceName name, parse_name(Collection::kJobs, "name", request.name()));
  ASSIGN_OR_RETURN(const Job job, parts.store.jobs().request_cancel(name.project, name.id));
  spdlog::info("event=job_cancel_requested {} {} {}", kv("job", job.name()),
               kv("state", name_of(job.state)), kv("caller", call.principal.text()));
  return to_proto(job);
}

Result<v1::Job> pause_job(const JobParts& parts, const v1::PauseJobRequest& request,
                          const CallInfo& call) {
  ASSIGN_OR_RETURN(const ResourceName name, parse_name(Collection::kJobs, "name", request.name()));
  ASSIGN_OR_RETURN(const Job job, parts.store.jobs().request_pause(name.project, name.id));
  spdlog::info("event=job_pause_requested {} {} {}", kv("job", job.name()),
               kv("state", name_of(job.state)), kv("caller", call.principal.text()));
  return to_proto(job);
}

Result<v1::Job> resume_job(const JobParts& parts, const v1::ResumeJobRequest& request,
                           const CallInfo& call) {
  ASSIGN_OR_RETURN(const ResourceName name, parse_name(Collection::kJobs, "name", request.name()));
  ASSIGN_OR_RETURN(const Job job, parts.store.jobs().resume(name.project, name.id));
  spdlog::info("event=job_resumed {} {} {}", kv("job", job.name()), kv("state", name_of(job.state)),
               kv("caller", call.principal.text()));
  return to_proto(parts.dispatcher.explained(job));
}

Result<v1::Job> set_job_priority(const JobParts& parts, const v1::SetJobPriorityRequest& request,
                                 const CallInfo& call) {
  ASSIGN_OR_RETURN(const ResourceName name, parse_name(Collection::kJobs, "name", request.name()));
  if (!request.has_priority()) {
    return field_error("FIELD_REQUIRED", "priority", "is missing, expected -100..100");
  }
  if (request.priority() < -kPriorityMax || request.priority() > kPriorityMax) {
    return field_error("FIELD_OUT_OF_RANGE", "priority",
                       std::to_string(request.priority()) + " is out of range, expected -100..100");
  }
  if (Status s = call.rights.check_priority("priority", request.priority()); !s.ok()) {
    return s.error();
  }
  ASSIGN_OR_RETURN(const Job job,
                   parts.store.jobs().set_priority(name.project, name.id, request.priority()));
  spdlog::info("event=job_priority_set {} priority={} {}", kv("job", job.name()), job.priority,
               kv("caller", call.principal.text()));
  return to_proto(parts.dispatcher.explained(job));
}

Status delete_job(const JobParts& parts, const v1::DeleteJobRequest& request,
                  const CallInfo& call) {
  ASSIGN_OR_RETURN(const ResourceName name, parse_name(Collection::kJobs, "name", request.name()));
  ASSIGN_OR_RETURN(const Job job, parts.store.jobs().remove(name.project, name.id));
  if (Status s = remove_noted(parts.store, parts.files, parts.paths, "jobs/" + job.uid); !s.ok()) {
    // The row was deleted, so nothing will use these files; a person may delete them.
    spdlog::warn("event=files_not_deleted {} {}", kv("job", job.name()),
                 kv("message", s.error().message));
  }
  spdlog::info("event=job_deleted {} {}", kv("job", job.name()),
               kv("caller", call.principal.text()));
  return {};
}

}  // namespace

Job with_disk_state(Job job, bool disk_is_full) {
  if (!disk_is_full || job.state != JobState::kRunning) return job;
  job.reason = "STORAGE_FULL";
  job.message =
      "It trains, but the server's disk is full: its metrics and checkpoints are not stored, and "
      "are not shown, until space is freed.";
  return job;
}

void add_job_rows(Methods& rows, const JobParts& parts, Executor& planning) {
  rows.add("SubmitJob", parts, &submit_job, planning, &submit_known_job);
  rows.add("PlanJob", parts, &plan_job, planning);
  rows.add("GetJob", parts, &get_job);
  rows.add("ListJobs", parts, &list_jobs);
  rows.add("ListQueue", parts, &list_queue);
  rows.add("CancelJob", parts, &cancel_job);
  rows.add("PauseJob", parts, &pause_job);
  rows.add("ResumeJob", parts, &resume_job);
  rows.add("SetJobPriority", parts, &set_job_priority);
  rows.add("DeleteJob", parts, &delete_job);
}

}  // namespace trainyard::server
