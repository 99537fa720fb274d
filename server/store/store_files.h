// server/store/store_files.h: the files of the store and their consistency.
//
//   trainyard.db         the store; -wal and -shm beside it belong to SQLite
//   trainyard.db.state   "open" while a daemon uses the store, "closed" after a clean end
//   trainyard.db.commit  the number of the newest commit (commit_mark.h)
//   trainyard.db.reserve blocks that are freed when the disk is full
//   trainyard.db.schema-N  a copy of before an upgrade (schema_copy.h)
//   lock                 state_lock.h
//
// A new store is made under another name and renamed when it is complete, so trainyard.db is never
// half made. The state file is what remembers that a store was here: without the store, or in state
// "open" without its WAL (which holds acknowledged changes), the daemon refuses to start; likewise
// where the store ends at an earlier commit than its file of commits says.
#pragma once

#include <filesystem>
#include <memory>

#include "server/store/commit_mark.h"
#include "server/store/sqlite.h"
#include "server/store/store.h"

namespace trainyard::server {

std::filesystem::path store_path(const std::filesystem::path& state_dir);
std::filesystem::path reserve_path(const std::filesystem::path& state_dir);

/// Creates state_dir (mode 0700) if it is missing.
Status make_state_dir(const std::filesystem::path& state_dir);
/// Whether statfs(2) named a file system that other machines may write to.
bool is_network_file_system(int64_t type);

/// The writing connection of the checked, migrated store, in WAL mode, and its count of commits.
/// The lock must be held. Errors: Store::open.
struct OpenStore {
  std::unique_ptr<Connection> db;
  int64_t commit = 0;  // the newest one's number
  CommitMark mark;
  std::vector<int64_t> unsettled = {};  // server/store/dependencies.h
};
Result<OpenStore> open_store(const StoreOptions& options);

/// The same before any migration: the checked store of whatever schema, which must exist. Throws
/// SqliteError.
Result<std::unique_ptr<Connection>> open_writing(const StoreOptions& options);
/// What a failure of SQLite says about the store's file, with the remedy.
Error store_error(const std::filesystem::path& path, const SqliteError& e);

/// The store of a daemon that does not run, to be looked at: nothing on the disk changes. The lock
/// must be held. Refuses what open_store() would, but for what only a start can see. Null if no
/// store was ever made here. Throws SqliteError where it is read.
Result<std::unique_ptr<Connection>> open_unchanged(const std::filesystem::path& state_dir);

/// After a clean end. If this fails, the next start only checks more thoroughly.
Status mark_closed(const std::filesystem::path& state_dir);
/// The number of the newest commit: missing, it is not compared at the next start.
std::filesystem::path commit_mark_path(const std::filesystem::path& state_dir);

}  // namespace trainyard::server
