// server/backup/staged_backup.h: the server's side of one backup: preserves all files of one
// instant until they are sent.
//
// The order of the steps makes the backup consistent. First the checkpoints of unfinished jobs are
// frozen, so that those pruned a moment later are preserved. Then a snapshot of the store is taken,
// and each file to which the store refers is frozen. If a file was removed in between, this begins
// again with a new snapshot. A checkpoint that the store does not know yet is left out, because the
// job would continue from it without the metrics that its worker had not reported. The store is
// copied last, which may be slow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/backup/frozen_files.h"
#include "server/config/paths.h"
#include "server/store/snapshot.h"
#include "src/base/result.h"

namespace trainyard::server {

class StagedBackup {
 public:
  static constexpr int kFormatVersion = 1;

  /// Freezes all files. The caller must ensure that there is only one backup at a time. Errors:
  /// RESOURCE_EXHAUSTED/STORAGE_FULL; FAILED_PRECONDITION/BACKUP_UNSUPPORTED; errors of the store.
  static Result<std::unique_ptr<StagedBackup>> begin(const StatePaths& paths);
  /// Removes the links.
  ~StagedBackup();
  StagedBackup(const StagedBackup&) = delete;
  StagedBackup& operator=(const StagedBackup&) = delete;

  /// Copies the next part of the store. Returns true when the copy is complete; then files() is
  /// complete too.
  Result<bool> prepare();
  int64_t copied_bytes() const { return copied_bytes_; }
  int64_t store_bytes() const { return store_bytes_; }

  const std::vector<FrozenFile>& files() const { return files_; }
  std::filesystem::path path_of(const FrozenFile& file) const { return root_ / file.path; }
  int64_t total_bytes() const;
  int64_t commit() const { return commit_; }
  /// Returns descriptions of files to which the store refers and which are missing in the folder,
  /// and so in the backup.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Removes the files that the backup of an ended daemon left behind.
  static void remove_leftovers(const StatePaths& paths);

 private:
  explicit StagedBackup(const StatePaths& paths);
  Status freeze_all();
  /// Freezes the files to which the store refers. Returns true if all exist; otherwise adds the
  /// missing ones to `missing`.
  Result<bool> freeze_named(const StateFiles& named, std::vector<std::string>& missing);
  Result<bool> freeze_job(const StateFiles::Job& job, std::vector<std::string>& missing);
  Result<bool> freeze_one(const std::string& path, const std::string& sha256,
                          const std::string& what, std::vector<std::string>& missing);
  Status freeze_checkpoints(const StateFiles::Job& job);

  const StatePaths paths_;
  const std::filesystem::path root_;
  FrozenFiles frozen_;
  std::unique_ptr<StoreSnapshot> snapshot_;  // null after the store was copied
  std::vector<FrozenFile> files_;
  std::vector<std::string> warnings_;
  int64_t copied_bytes_ = 0;
  int64_t store_bytes_ = 0;
  int64_t commit_ = 0;
};

}  // namespace trainyard::server
