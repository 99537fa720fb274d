// server/files/removals.h: the files of what was deleted (server/store/removals.h).
#pragma once

#include <filesystem>
#include <string>

#include "server/config/paths.h"
#include "server/store/store.h"
#include "src/base/files.h"

namespace trainyard::server {

/// Removes a file or a folder that lies in one of the state folder's own folders. It takes no other
/// path: one that is wrong could be that of everything.
Status remove_kept(Files& files, const StatePaths& paths, const std::filesystem::path& path);

/// Removes `path`, relative to the state folder, whose row is gone. After an error the next start
/// tries again.
Status remove_noted(Store& store, Files& files, const StatePaths& paths, const std::string& path);

/// What an earlier daemon did not come to. A folder that cannot be removed is logged and stays.
void finish_removals(Store& store, Files& files, const StatePaths& paths);

}  // namespace trainyard::server
