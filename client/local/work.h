// client/local/work.h: the functions of LocalWork, which trainyard-local provides to the commands
// of client/cli.
#pragma once

#include <string>
#include <vector>

#include "client/cli/local_work.h"

namespace trainyard::cli {

Result<int> run_local_run(Session& session, const LocalRunOptions& options);
Result<int> run_local_check(Session& session, const std::string& wish);
Result<v1::JobPlan> plan_here(const client::SpecFile& spec, const LocalPlanOptions& options);
Result<std::string> draw_png(const std::vector<Chart>& charts);

}  // namespace trainyard::cli
