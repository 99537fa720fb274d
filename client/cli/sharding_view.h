// client/cli/sharding_view.h: a job's sharding plans side by side.
#pragma once

#include <string>

#include "client/cli/terminal.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// A row for each sharding plan that was planned, in the plan's order; columns that say nothing of
/// this job are left out. Below it the refusals in full, what the job as it is planned lacks, and
/// what the times rest on.
std::string render_sharding_plans(const v1::JobPlan& plan, const Terminal& out);
/// For a terminal of so many columns; 0: without a bound.
std::string render_sharding_plans(const v1::JobPlan& plan, bool colour, int width, bool utf8);

}  // namespace trainyard::cli
