// server/handlers/job_arrays.cc: arrays, which are many jobs that differ in some values and are
// submitted together.
#include <spdlog/spdlog.h>

#include "server/config/log.h"
#include "server/files/removals.h"
#include "server/handlers/job_handlers.h"
#include "server/planning/array_plans.h"
#include "server/planning/digest.h"
#include "server/planning/job_planner.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"

namespace trainyard::server {
namespace {

constexpr size_t kArraySpecBytesMax = 3 << 20;  // a message may have 4 MiB

RequestId request_of(const std::string& project, const v1::SubmitArrayRequest& request,
                     const std::string& person) {
  if (request.request_id().empty()) return {};
  return {project, request.request_id(), digest_of_request(request, person)};
}

/// Returns the array's project.
Result<std::string> check_request(const v1::SubmitArrayRequest& request) {
  ASSIGN_OR_RETURN(std::string project, parse_parent(request.parent()));
  if (!request.array_id().empty()) {
    if (Status s = check_id(Collection::kArrays, "array_id", request.array_id()); !s.ok()) {
      return s.error();
    }
  }
  if (Status s = check_request_id(request.request_id()); !s.ok()) return s.error();
  if (!request.has_spec()) {
    return field_error("FIELD_REQUIRED", "spec", "is missing, expected dataset, model and recipe");
  }
  if (!request.has_array()) {
    return field_error("FIELD_REQUIRED", "array",
                       "is missing, expected one of grid, list and random");
  }
  if (const size_t bytes = request.array().ByteSizeLong(); bytes > kArraySpecBytesMax) {
    return field_error("ARRAY_SIZE_INVALID", "array",
                       "has " + std::to_string(bytes) +
                           " bytes, expected at most 3 MiB of values; submit several arrays");
  }
  return project;
}

void submit_array(const JobParts& parts, const v1::SubmitArrayRequest& request,
                  const CallInfo& call, Done<v1::JobArray> done) {
  if (parts.draining) return done(draining_error());
  Result<std::string> project = check_request(request);
  if (!project.ok()) return done(project.error());
  ArrayStore& arrays = parts.store.arrays();
  const RequestId request_id = request_of(*project, request, call.principal.person);
  if (!request_id.id.empty() && !request.validate_only()) {
    // A repeated request returns its array, even if the spec names something that no longer exists.
    Result<std::optional<JobArray>> first = arrays.find_request(request_id);
    if (!first.ok()) return done(first.error());
    if (*first) return done(to_proto(**std::move(first)));
  }
  const Result<ArrayMembers> members = expand_array(request.array());
  if (!members.ok()) return done(members.error());
  Result<PlannedArray> planned =
      plan_array(parts.planner, parts.clock, *project, request.spec(), *members, call.stop);
  if (!planned.ok()) return done(std::move(planned).error());
  for (size_t i = 0; i < planned->members.size(); ++i) {
    const std::string field = "priority of member " + std::to_string(i);
    Status s = call.rights.check_priority(field, planned->members[i].priority);
    if (!s.ok()) return done(s.error());
  }
  if (request.validate_only()) {
    v1::JobArray answer;
    if (!request.array_id().empty()) {
      answer.set_name(full_name(*project, Collection::kArrays, request.array_id()));
    }
    *answer.mutable_spec() = request.spec();
    *answer.mutable_array() = request.array();
    answer.set_size(static_cast<int32_t>(planned->members.size()));
    return done(std::move(answer));
  }
  NewArray array;
  array.project = *std::move(project);
  array.id = request.array_id();
  array.owner = call.principal.person;
  array.spec = request.spec();
  array.array = request.array();
  array.after = std::move(planned->first.after);
  array.shapes = std::move(planned->shapes);
  array.members = std::move(planned->members);
  array.request_id = request_id.id;
  array.request_digest = request_id.digest;
  if (Status room = parts.disk.check(); !room.ok()) array.refusal = room.error();
  arrays.submit(std::move(array), [done = std::move(done)](Result<JobArray> stored) {
    if (!stored.ok()) return done(std::move(stored).error());
    spdlog::info("event=array_submitted {} uid={} size={} {}", kv("array", stored->name()),
                 stored->uid, stored->size, kv("owner", stored->owner));
    done(to_proto(*std::move(stored)));
  });
}

Result<v1::JobArray> get_array(const JobParts& parts, const v1::GetArrayRequest& request) {
  ASSIGN_OR_RETURN(const ResourceName name,
                   parse_name(Collection::kArrays, "name", request.name()));
  ASSIGN_OR_RETURN(JobArray array, parts.store.arrays().find(name.project, name.id));
  return to_proto(std::move(array));
}

Result<v1::ListArraysResponse> list_arrays(const JobParts& parts,
                                           const v1::ListArraysRequest& request) {
  ASSIGN_OR_RETURN(const std::string project, parse_parent(request.parent()));
  ASSIGN_OR_RETURN(ArrayPage page,
                   parts.store.arrays().list({project, request.page_size(), request.page_token()}));
  v1::ListArraysResponse response;
  for (JobArray& array : page.arrays) *response.add_arrays() = to_proto(std::move(array));
  response.set_next_page_token(page.next_page_token);
  return response;
}

void steer_array(const JobParts& parts, const std::string& array_name, Steering steering,
                 const CallInfo& call, Done<v1::JobArray> done) {
  Result<ResourceName> name = parse_name(Collection::kArrays, "name", array_name);
  if (!name.ok()) return done(std::move(name).error());
  const char* const event = steering == Steering::kCancel  ? "array_cancel_requested"
                            : steering == Steering::kPause ? "array_pause_requested"
                                                           : "array_resumed";
  parts.store.arrays().steer(
      name->project, name->id, steering,
      [event, caller = call.principal.text(), done = std::move(done)](Result<JobArray> array) {
        if (!array.ok()) return done(std::move(array).error());
        spdlog::info("event={} {} {}", event, kv("array", array->name()), kv("caller", caller));
        done(to_proto(*std::move(array)));
      });
}

void cancel_array(const JobParts& parts, const v1::CancelArrayRequest& request,
                  const CallInfo& call, Done<v1::JobArray> done) {
  steer_array(parts, request.name(), Steering::kCancel, call, std::move(done));
}
void pause_array(const JobParts& parts, const v1::PauseArrayRequest& request, const CallInfo& call,
                 Done<v1::JobArray> done) {
  steer_array(parts, request.name(), Steering::kPause, call, std::move(done));
}
void resume_array(const JobParts& parts, const v1::ResumeArrayRequest& request,
                  const CallInfo& call, Done<v1::JobArray> done) {
  steer_array(parts, request.name(), Steering::kResume, call, std::move(done));
}

Status delete_array(const JobParts& parts, const v1::DeleteArrayRequest& request,
                    const CallInfo& call) {
  ASSIGN_OR_RETURN(const ResourceName name,
                   parse_name(Collection::kArrays, "name", request.name()));
  for (bool all = false; !all;) {
    ASSIGN_OR_RETURN(const RemovedMembers removed,
                     parts.store.arrays().remove_some(name.project, name.id));
    all = removed.all;
    std::vector<std::string> gone;
    for (const std::string& uid : removed.uids) {
      const std::string path = "jobs/" + uid;
      const Status files = remove_kept(parts.files, parts.paths, parts.paths.root() / path);
      if (files.ok()) {
        gone.push_back(path);
      } else {
        // The row was deleted, so nothing will use these files; the next start tries again.
        spdlog::warn("event=files_not_deleted uid={} {}", uid,
                     kv("message", files.error().message));
      }
    }
    if (Status s = parts.store.removals().forget_all(std::move(gone)); !s.ok()) return s;
  }
  spdlog::info("event=array_deleted {} {}", kv("array", request.name()),
               kv("caller", call.principal.text()));
  return {};
}

}  // namespace

void add_array_rows(Methods& rows, const JobParts& parts, Executor& arrays) {
  rows.add("SubmitArray", parts, &submit_array, arrays);
  rows.add("GetArray", parts, &get_array);
  rows.add("ListArrays", parts, &list_arrays);
  rows.add("CancelArray", parts, &cancel_array);
  rows.add("PauseArray", parts, &pause_array);
  rows.add("ResumeArray", parts, &resume_array);
  rows.add("DeleteArray", parts, &delete_array);
}

}  // namespace trainyard::server
