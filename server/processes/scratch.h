// server/processes/scratch.h: the folders in which sandboxed workers write, and what the daemon
// takes from there. A worker may write nowhere else, so the daemon moves its result to its place.
#pragma once

#include <filesystem>

#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Returns an empty folder at `path`, without what an earlier task has left there.
Status make_scratch(Files& files, const std::filesystem::path& path);

/// Removes everything in the folder.
Status empty_folder(Files& files, const std::filesystem::path& folder);

/// Moves a folder that a worker has made to `place`, where it replaces another one. Does nothing if
/// it is not there, because it was moved before. INTERNAL/WORKER_PROTOCOL_ERROR if it has something
/// other than folders and files, or a file with another name elsewhere: a link could make the
/// daemon, or another task, read or write a file of the worker's choice.
Status take_result(Files& files, const std::filesystem::path& made,
                   const std::filesystem::path& place);

}  // namespace trainyard::server
