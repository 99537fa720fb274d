// server/store/snapshot.h: the store as of one instant, and a copy of it, while the daemon goes on
// writing.
//
// A read-only connection of its own holds a read transaction from take() on: nothing is
// checkpointed past that instant, and nothing else waits for it. The copy is a store like any
// other, with its number of commits, except for what means nothing elsewhere: the processes of live
// attempts, and uploads under way, whose bytes are still being written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "server/store/state_files.h"
#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreSnapshot {
 public:
  /// Of the store of a daemon that runs. Errors: those of the store.
  static Result<std::unique_ptr<StoreSnapshot>> take(const std::filesystem::path& state_dir);

  /// Number of the newest commit in it.
  int64_t commit() const { return commit_; }
  const StateFiles& files() const { return files_; }
  int64_t size_bytes() const { return size_bytes_; }

  /// Copies the next kCopyBytes into the folder `to`: trainyard.db, and at the end what belongs to
  /// it. True when the copy is complete.
  Result<bool> copy_some(const std::filesystem::path& to);
  int64_t copied_bytes() const { return copied_bytes_; }

 private:
  static constexpr int64_t kCopyBytes = int64_t{16} << 20;
  using Backup = Handle<sqlite3_backup, sqlite3_backup_finish>;

  explicit StoreSnapshot(const std::filesystem::path& path);
  void begin_copy(const std::filesystem::path& to);
  Status finish_copy(const std::filesystem::path& to);

  Connection db_;
  Transaction transaction_;
  int64_t commit_ = 0;
  StateFiles files_;
  int64_t page_bytes_ = 0;
  int64_t size_bytes_ = 0;
  int64_t copied_bytes_ = 0;
  std::unique_ptr<Connection> copy_;
  Backup backup_;  // ends before both connections
};

}  // namespace trainyard::server
