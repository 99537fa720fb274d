// client/cli/sharding_view.h: shows a job's sharding plans as a table.
#pragma once

#include <string>

#include "client/cli/terminal.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// Returns a table of the sharding plans: one row per plan that is not refused, in the server's
/// order, without columns that have no information for this job. Below the table are the refused
/// plans with their reasons, the source of the step times and, if the job does not fit, what it
/// lacks.
std::string render_sharding_plans(const v1::JobPlan& plan, const Terminal& out);
/// Returns the table of sharding plans for a terminal of `width` columns; 0: unlimited.
std::string render_sharding_plans(const v1::JobPlan& plan, bool colour, int width, bool utf8);

}  // namespace trainyard::cli
