// server/store/commit_mark.h: keeps the number of the newest commit that may have been acknowledged
// in a small file outside the database and its log.
//
// SQLite mistakes a log that was truncated, emptied or damaged for one that ends earlier, and opens
// it without an error. The number is written after each commit and before the commit's changes are
// acknowledged. So a store that opens with a smaller number has lost acknowledged changes. The file
// is synced at most kSyncPauseUs later. After a power cut its number may therefore be smaller than
// the store's; this is no sign of a loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

class CommitMark {
 public:
  static constexpr int64_t kSyncPauseUs = 100'000;

  /// Returns the number in the file, or nothing if the file does not exist. Error:
  /// DATA_LOSS/STORE_MARK_DAMAGED.
  static Result<std::optional<int64_t>> read(const std::filesystem::path& path);
  /// Replaces the file, or creates it, with `number` in it. Errors: UNAVAILABLE/STORAGE_ERROR,
  /// RESOURCE_EXHAUSTED/STORAGE_FULL.
  static Result<CommitMark> open(const std::filesystem::path& path, int64_t number);

  CommitMark() = default;  // a mark without a file: write() and sync() do nothing
  /// Returns false and leaves errno set if the file cannot be written.
  bool write(int64_t number);
  /// Syncs the file if it was written since the last sync. Returns false if that fails.
  bool sync();
  bool is_synced() const { return synced_; }

 private:
  UniqueFd fd_;
  bool synced_ = true;
};

}  // namespace trainyard::server
