// server/planning/array_plans.h: the members of an array, each checked as SubmitJob checks a job,
// and planned together where they cannot differ in what a plan says.
//
// Rates, momentum, decay, seeds, labels and priorities change no graph, no memory and no time of a
// step: members that differ in nothing else share one plan. A number in place of 0, or of 1, may
// change the graph, so these two are told apart.
#pragma once

#include <stop_token>
#include <string_view>

#include "server/planning/array_members.h"
#include "server/planning/job_planner.h"
#include "server/store/array.h"

namespace trainyard::server {

/// Different plans that the members of an array may need, and how long they may take together.
inline constexpr size_t kArrayPlansMax = 1000;
inline constexpr int64_t kArrayPlanningUs = 30'000'000;
/// Of the specs and the values of all members together.
inline constexpr int64_t kArrayBytesMax = 64 << 20;

/// True if no plan depends on the field, but for 0 and 1.
bool is_neutral(std::string_view path);

/// The first member's plan is in `first`, for an answer without storing. Refusals name the member
/// and its values: plan()'s; ARRAY_SIZE, ARRAY_PLANS. CANCELLED/STOPPED.
struct PlannedArray {
  std::vector<MemberShape> shapes;
  std::vector<NewMember> members;
  PlannedJob first;
};
Result<PlannedArray> plan_array(JobPlanner& planner, const Clock& clock, const v1::JobSpec& spec,
                                const ArrayMembers& array, const std::stop_token& stop);

}  // namespace trainyard::server
