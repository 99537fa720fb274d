// server/backup/staged_backup.h: one backup on the server's side: all files of one instant, held
// still until they are sent.
//
// The order is what makes it consistent. Unfinished jobs' checkpoints are frozen first, so that
// what is pruned a moment later stays. Then the store is held at an instant, then each file that it
// names is frozen; if one was removed in between, it begins again with a new instant. A checkpoint
// that the store does not know yet is left out: the job would go on from it without the metrics
// that its worker had not reported. The store's copy comes last and may take its time.
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

  /// Freezes everything. The caller sees to it that there is one at a time.
  /// RESOURCE_EXHAUSTED/STORAGE_FULL; FAILED_PRECONDITION/BACKUP_UNSUPPORTED; errors of the store.
  static Result<std::unique_ptr<StagedBackup>> begin(const StatePaths& paths);
  /// Removes the links.
  ~StagedBackup();
  StagedBackup(const StagedBackup&) = delete;
  StagedBackup& operator=(const StagedBackup&) = delete;

  /// Copies the store on; true when nothing is left to do. Then files() is complete.
  Result<bool> prepare();
  int64_t copied_bytes() const { return copied_bytes_; }
  int64_t store_bytes() const { return store_bytes_; }

  const std::vector<FrozenFile>& files() const { return files_; }
  std::filesystem::path path_of(const FrozenFile& file) const { return root_ / file.path; }
  int64_t total_bytes() const;
  int64_t commit() const { return commit_; }
  /// What the store names and the folder does not have. The backup does not have it either.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// What an ended daemon left.
  static void remove_leftovers(const StatePaths& paths);

 private:
  explicit StagedBackup(const StatePaths& paths);
  Status freeze_all();
  /// Freezes what the store names. True if it was all there; else `missing` says what was not.
  Result<bool> freeze_named(const StateFiles& named, std::vector<std::string>& missing);
  Result<bool> freeze_job(const StateFiles::Job& job, std::vector<std::string>& missing);
  Result<bool> freeze_one(const std::string& path, const std::string& sha256,
                          const std::string& what, std::vector<std::string>& missing);
  Status freeze_checkpoints(const StateFiles::Job& job);

  const StatePaths paths_;
  const std::filesystem::path root_;
  FrozenFiles frozen_;
  std::unique_ptr<StoreSnapshot> snapshot_;  // until it is copied
  std::vector<FrozenFile> files_;
  std::vector<std::string> warnings_;
  int64_t copied_bytes_ = 0;
  int64_t store_bytes_ = 0;
  int64_t commit_ = 0;
};

}  // namespace trainyard::server
