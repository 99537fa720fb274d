// server/store/store_files.h: the files of the store and the checks of their consistency.
//
//   trainyard.db         the store; -wal and -shm next to it belong to SQLite
//   trainyard.db.state   "open" while a daemon uses the store, "closed" after a clean end
//   trainyard.db.commit  the number of the newest commit (commit_mark.h)
//   trainyard.db.reserve a file that is deleted when the disk is full
//   trainyard.db.schema-N  a copy from before an upgrade (schema_copy.h)
//   lock                 the daemon's lock (state_lock.h)
//
// A new store is created under another name and renamed when it is complete, so trainyard.db is
// never incomplete. The state file records that there was a store. The daemon refuses to start if
// the state file exists without the store, if the state is "open" but the WAL is missing (it
// contains acknowledged changes), or if the store's newest commit has a smaller number than its
// commit file.
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
/// Returns whether this file system type of statfs(2) is a network file system, to which other
/// machines may write.
bool is_network_file_system(int64_t type);

/// A store that was checked and migrated. open_store() returns it; the caller must hold the lock.
/// Errors: those of Store::open.
struct OpenStore {
  std::unique_ptr<Connection> db;
  int64_t commit = 0;  // number of the newest commit
  CommitMark mark;
  // Ended jobs whose dependents are not settled (dependencies.h).
  std::vector<int64_t> unsettled = {};
};
Result<OpenStore> open_store(const StoreOptions& options);

/// Returns the writing connection to an existing, checked store of any schema, without migration.
/// Throws SqliteError.
Result<std::unique_ptr<Connection>> open_writing(const StoreOptions& options);
/// Returns the error for a failure of SQLite on the store's file; names the file and, for damage,
/// the remedy.
Error store_error(const std::filesystem::path& path, const SqliteError& e);

/// Opens the store of a stopped daemon for reading, without changing any file. The caller must hold
/// the lock. Refuses the same stores as open_store(), except for faults that only a start detects.
/// Returns null if no store was ever created here. Queries on the connection may throw SqliteError.
Result<std::unique_ptr<Connection>> open_unchanged(const std::filesystem::path& state_dir);

/// Records a clean end of the daemon. If this fails, the next start only checks more thoroughly.
Status mark_closed(const std::filesystem::path& state_dir);
/// Returns the file with the number of the newest commit. If it is missing, the next start does not
/// compare the number.
std::filesystem::path commit_mark_path(const std::filesystem::path& state_dir);

}  // namespace trainyard::server
