// server/planning/array_plans.h: checks each member of an array as SubmitJob checks a job, and
// plans members together whose plans cannot differ.
//
// Rates, momentum, decay, seeds, labels and priorities change neither the graph, nor the memory,
// nor the time of a step, so members that differ only in these share one plan. Replacing 0 or 1 by
// another number may change the graph, so these two values are distinguished.
#pragma once

#include <stop_token>
#include <string_view>

#include "server/planning/array_members.h"
#include "server/planning/job_planner.h"
#include "server/store/array.h"

namespace trainyard::server {

/// Limits of the number of different plans that the members of an array may need, and of the time
/// for all these plans together.
inline constexpr size_t kArrayPlansMax = 1000;
inline constexpr int64_t kArrayPlanningUs = 30'000'000;
/// Limits the bytes of the specs and values of all members together.
inline constexpr int64_t kArrayBytesMax = 64 << 20;

/// Returns true if no plan depends on the field, except on the values 0 and 1.
bool is_neutral(std::string_view path);

struct PlannedArray {
  std::vector<MemberShape> shapes;
  std::vector<NewMember> members;
  PlannedJob first;  // the first member's plan, for a response without storing the array
};
/// Plans all members of an array. Errors name the member and its values: those of plan();
/// ARRAY_SIZE_INVALID, ARRAY_PLANS_TOO_MANY. CANCELLED/STOPPED.
Result<PlannedArray> plan_array(JobPlanner& planner, const Clock& clock, const std::string& project,
                                const v1::JobSpec& spec, const ArrayMembers& array,
                                const std::stop_token& stop);

}  // namespace trainyard::server
