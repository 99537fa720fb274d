// server/store/store_files.h: the files of the store, and whether they are what they should be.
//
//   trainyard.db         the store; -wal and -shm beside it belong to SQLite
//   trainyard.db.state   "open" while a daemon uses the store, "closed" after a clean end
//   trainyard.db.reserve blocks that are freed when the disk is full
//   lock                 state_lock.h
//
// A new store is made under another name and renamed when it is complete, so trainyard.db is never
// half made. The state file is what remembers that a store was here: without the store, or in state
// "open" without its WAL (which holds acknowledged changes), the daemon refuses to start.
#pragma once

#include <filesystem>
#include <memory>

#include "server/store/sqlite.h"
#include "server/store/store.h"

namespace trainyard::server {

std::filesystem::path store_path(const std::filesystem::path& state_dir);
std::filesystem::path reserve_path(const std::filesystem::path& state_dir);

/// Makes state_dir (mode 0700) if it is missing.
Status make_state_dir(const std::filesystem::path& state_dir);
/// Whether statfs(2) named a file system that other machines may write to.
bool is_network_file_system(int64_t type);

/// The writing connection of the checked, migrated store, in WAL mode. The lock must be held.
/// Errors: Store::open.
Result<std::unique_ptr<Connection>> open_store(const StoreOptions& options);

/// After a clean end. Failing to say so only makes the next start look more closely.
void mark_closed(const std::filesystem::path& state_dir);

}  // namespace trainyard::server
