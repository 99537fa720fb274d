// client/cli/follow_view.h: following a job to its end, for `watch` and `submit --watch`.
#pragma once

#include <string>

#include "client/cli/session.h"

namespace trainyard::cli {

/// Shows the job's events on `terminal` (or as JSON lines on stdout if the format says so) until it
/// ends. The exit code is the job's; after Ctrl-C it is 130, and a line says that the job
/// continues.
Result<int> watch_to_the_end(Session& session, const std::string& name, int64_t after,
                             Terminal& terminal);

/// Waits without showing anything but, at the end, why the job did not succeed, and its warnings.
/// `timeout_s` 0: no limit; else 124 when it has passed.
Result<int> wait_for_the_end(Session& session, const std::string& name, double timeout_s);

}  // namespace trainyard::cli
