// server/store/array.h: arrays, which are many jobs that differ in some values, and the commands
// that make and change them. Times are microseconds since 1970, as in job.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/store/job.h"

namespace trainyard::server {

struct JobArray {
  std::string project;
  std::string id;
  std::string uid;
  int64_t order = 0;  // of submission
  std::string owner;
  v1::JobSpec spec;
  v1::ArraySpec array;  // ArrayStore::list() leaves it out
  int32_t size = 0;     // members at submission
  int64_t create_time_us = 0;
  int64_t end_time_us = 0;                           // the newest end of a member
  std::vector<std::pair<JobState, int64_t>> states;  // members by state, none with 0

  std::string name() const { return "projects/" + project + "/arrays/" + id; }
  bool has_ended() const;
};

v1::JobArray to_proto(JobArray array);

/// The ID of a member, and of the array from that of a member.
std::string member_id(std::string_view array_id, int64_t index);
std::string_view array_id_of(std::string_view member_id);

/// What members have in common that were planned together.
struct MemberShape {
  std::string plan;  // RunPlan, serialized once for all of them
  DatasetRef dataset;
  std::string initial_model_id;
  JobBrief brief;  // resources and needs; each member fills in the rest
};

struct NewMember {
  size_t shape = 0;    // of NewArray::shapes
  std::string spec;    // JobSpec, serialized: the writer has nothing to compute
  std::string values;  // ArrayMember, serialized
  int32_t priority = 0;
};

struct NewArray {
  std::string project = "default";
  std::string id;  // empty: the store chooses one
  std::string owner;
  v1::JobSpec spec;
  v1::ArraySpec array;
  std::vector<Dependency> after;  // of every member
  std::vector<MemberShape> shapes;
  std::vector<NewMember> members;
  // As NewJob's.
  std::string request_id;
  std::string request_digest;
  std::optional<Error> refusal;
};

/// What is asked of all members that have not ended, as CancelJob, PauseJob and ResumeJob.
enum class Steering : uint8_t { kCancel, kPause, kResume };

struct ArrayQuery {
  std::string project = "default";
  int32_t page_size = 50;
  std::string page_token;
};
struct ArrayPage {
  std::vector<JobArray> arrays;  // newest first
  std::string next_page_token;
};

struct RemovedMembers {
  std::vector<std::string> uids;  // whose files the caller removes
  bool all = false;               // the array is gone too
};

}  // namespace trainyard::server
