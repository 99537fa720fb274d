// server/check/unused_files.h: finds files of a state folder to which its store does not refer.
#pragma once

#include <filesystem>
#include <set>
#include <vector>

#include "server/config/paths.h"
#include "server/store/state_files.h"

namespace trainyard::server {

/// Returns the entries of the folders for uploads, datasets, models and jobs, sorted within each
/// folder.
std::vector<std::filesystem::path> list_kept_files(const StatePaths& paths);

/// Returns the paths to which the store refers. To compare them with the files while a daemon runs,
/// list the files first, so that a file that is created in between does not count as unused.
std::set<std::filesystem::path> used_files(const StatePaths& paths, const StateFiles& named);

/// Adds the paths to which the store's copy from before an upgrade refers
/// (server/store/schema_copy.h), so that an upgrade can still be undone. Returns false if there is
/// a copy that cannot be read; then no file may be treated as unused.
bool add_files_of_copy(const StatePaths& paths, std::set<std::filesystem::path>& used);

}  // namespace trainyard::server
