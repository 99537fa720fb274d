// server/dispatch/job_files.h: the files of a finished job, kept to what is of use: its
// checkpoints, and its model if it SUCCEEDED.
#pragma once

#include <string>

#include "server/config/paths.h"

namespace trainyard::server {

/// Whether the folder of a job has anything that tidy_ended_job() would remove from it.
bool has_leftovers(const StatePaths& paths, const std::string& job_uid);

/// Removes what nothing reads any more of a job that has ended and whose worker is gone: reports
/// that were on their way, half-written checkpoints and models, empty folders; and, unless it
/// `succeeded`, a model that no row names. What cannot be removed stays.
void tidy_ended_job(const StatePaths& paths, const std::string& job_uid, bool succeeded);

}  // namespace trainyard::server
