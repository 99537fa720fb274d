// server/check/unused_files.h: what lies in a state folder and is named nowhere in its store.
#pragma once

#include <filesystem>
#include <set>
#include <vector>

#include "server/config/paths.h"
#include "server/store/state_files.h"

namespace trainyard::server {

/// The entries of the folders for uploads, datasets, models and jobs, in order.
std::vector<std::filesystem::path> list_kept_files(const StatePaths& paths);

/// Those that the store names. To compare both beside a daemon, list the files first: what is made
/// afterwards is then in neither.
std::set<std::filesystem::path> used_files(const StatePaths& paths, const StateFiles& named);

}  // namespace trainyard::server
