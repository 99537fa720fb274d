// client/cli/follow_view.h: follows a job to its end, for `watch`, `wait` and `submit`.
#pragma once

#include <string>

#include "client/cli/session.h"

namespace trainyard::cli {

/// Shows the job's events on `terminal` (or as JSON lines on stdout if the format is for machines)
/// until it ends. Returns the job's exit code; after Ctrl-C it returns 130 and prints that the job
/// continues.
Result<int> watch_until_end(Session& session, const std::string& name, int64_t after,
                            Terminal& terminal);

/// Waits for the job's end, and then prints only its warnings and why it did not succeed. Returns
/// 124 after `timeout_s` seconds; 0: no limit.
Result<int> wait_until_end(Session& session, const std::string& name, double timeout_s);

}  // namespace trainyard::cli
