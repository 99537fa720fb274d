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

/// Adds what the store's copy of before an upgrade names (server/store/schema_copy.h), so that the
/// way to it stays open. False if a copy is there that cannot be read: then nothing is unused.
bool add_files_of_copy(const StatePaths& paths, std::set<std::filesystem::path>& used);

}  // namespace trainyard::server
