// server/files/removals.h: deletes the files of deleted resources (server/store/removals.h).
#pragma once

#include <filesystem>
#include <string>

#include "server/config/paths.h"
#include "server/store/store.h"
#include "src/base/files.h"

namespace trainyard::server {

/// Deletes a file or folder inside one of the state folder's own folders. Any other path fails a
/// check, since a wrong path could delete everything.
Status remove_kept(Files& files, const StatePaths& paths, const std::filesystem::path& path);

/// Deletes `path`, which is relative to the state folder and whose row has been deleted. After an
/// error the next start of the daemon tries again.
Status remove_noted(Store& store, Files& files, const StatePaths& paths, const std::string& path);

/// Deletes the paths that an earlier daemon did not delete. Logs and keeps a folder that cannot be
/// deleted.
void finish_removals(Store& store, Files& files, const StatePaths& paths);

}  // namespace trainyard::server
