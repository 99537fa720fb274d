// server/files/removals.h: deletes the files of deleted resources (server/store/removals.h).
#pragma once

#include <string>

#include "server/config/paths.h"
#include "server/store/store.h"
#include "src/base/files.h"

namespace trainyard::server {

/// Deletes `path`, which is relative to the state folder and whose row has been deleted. After an
/// error the next start of the daemon tries again.
Status remove_noted(Store& store, Files& files, const StatePaths& paths, const std::string& path);

/// Deletes the paths that an earlier daemon did not delete. Logs and keeps a folder that cannot be
/// deleted.
void finish_removals(Store& store, Files& files, const StatePaths& paths);

}  // namespace trainyard::server
