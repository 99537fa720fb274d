// server/store/snapshot.h: a snapshot of the store at one instant, and a copy of it, while the
// daemon continues to write.
//
// A separate read-only connection keeps a read transaction open from take() on. It prevents
// checkpoints beyond that instant but blocks nothing else. The copy is a complete store with its
// number of commits. It leaves out only the data that would be wrong elsewhere: the processes of
// live attempts, and unfinished uploads, whose bytes are still being written.
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
  /// Takes a snapshot of the store of a running daemon. Errors: those common to the store
  /// (store.h).
  static Result<std::unique_ptr<StoreSnapshot>> take(const std::filesystem::path& state_dir);

  /// Returns the number of the newest commit in the snapshot.
  int64_t commit() const { return commit_; }
  const StateFiles& files() const { return files_; }
  int64_t size_bytes() const { return size_bytes_; }

  /// Copies the next kCopyBytes to trainyard.db in the folder `to`, and with the last part also
  /// writes the small files that belong to it. Returns true when the copy is complete.
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
  Backup backup_;  // declared last, so that it is destroyed before both connections
};

}  // namespace trainyard::server
