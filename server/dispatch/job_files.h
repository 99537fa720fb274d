// server/dispatch/job_files.h: deletes the useless files of a finished job, so that its checkpoints
// stay, and its model if it SUCCEEDED.
#pragma once

#include <filesystem>
#include <string>

#include "server/config/paths.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Returns whether tidy_ended_job() would remove anything from the job's folder.
bool has_leftovers(const StatePaths& paths, const std::string& job_uid);

/// Removes the files of an ended job that nothing reads any more: spooled reports, partly written
/// and partly removed checkpoints, models partly written, empty folders, and, unless the job
/// `succeeded`, a model that no row refers to. The job's worker must have ended. Ignores errors.
void tidy_ended_job(const StatePaths& paths, const std::string& job_uid, bool succeeded);

/// Checks that the folder has the files of a model: a model.json with its parts, and weights whose
/// header can be read. Does not build what model.json describes, since it may be large.
/// INVALID_ARGUMENT/MODEL_FILE_INVALID, or the error of the read.
Status check_delivered_model(const std::filesystem::path& folder);

}  // namespace trainyard::server
