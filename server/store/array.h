// server/store/array.h: arrays and the commands that create and change them. An array is many jobs
// that differ in some values. Times are microseconds since 1970, as in job.h.
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
  int64_t order = 0;  // rank in the order of submission
  std::string owner;
  v1::JobSpec spec;
  v1::ArraySpec array;  // empty in the results of ArrayStore::list()
  int32_t size = 0;     // the number of members at submission
  int64_t create_time_us = 0;
  int64_t end_time_us = 0;                           // when the last member so far ended
  std::vector<std::pair<JobState, int64_t>> states;  // members per state, without zeros

  std::string name() const { return "projects/" + project + "/arrays/" + id; }
  bool has_ended() const;
};

v1::JobArray to_proto(JobArray array);

/// Returns the ID of member `index`, and the ID of a member's array.
std::string member_id(std::string_view array_id, int64_t index);
std::string_view array_id_of(std::string_view member_id);

/// The data common to members that were planned together.
struct MemberShape {
  std::string plan;  // RunPlan, serialized once for all members
  DatasetRef dataset;
  std::string dataset_project = {};  // these mean what they mean in NewJob
  std::string initial_model_id;
  std::string initial_model_project = {};
  JobBrief brief;  // resources and needs; each member fills in the rest
};

struct NewMember {
  size_t shape = 0;    // index into NewArray::shapes
  std::string spec;    // JobSpec, serialized here so that the writer thread need not
  std::string values;  // ArrayMember, serialized
  int32_t priority = 0;
};

struct NewArray {
  std::string project;
  std::string id;  // empty: the store chooses one
  std::string owner;
  v1::JobSpec spec;
  v1::ArraySpec array;
  std::vector<Dependency> after;  // the jobs that every member waits for
  std::vector<MemberShape> shapes;
  std::vector<NewMember> members;
  // These three mean what they mean in NewJob.
  std::string request_id;
  std::string request_digest;
  std::optional<Error> refusal;
};

/// A request to all members that have not ended: CancelJob, PauseJob or ResumeJob for each.
enum class Steering : uint8_t { kCancel, kPause, kResume };

struct ArrayQuery {
  std::string project;
  int32_t page_size = 50;
  std::string page_token;
};
struct ArrayPage {
  std::vector<JobArray> arrays;  // newest first
  std::string next_page_token;
};

struct RemovedMembers {
  std::vector<std::string> uids;  // of the removed members; the caller deletes their files
  bool all = false;               // the array's own row was deleted too
};

}  // namespace trainyard::server
