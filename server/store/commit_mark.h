// server/store/commit_mark.h: the number of the newest commit that may have been acknowledged, in a
// small file outside the database and its log.
//
// SQLite takes a log that was cut, emptied or damaged for one that ends earlier, and opens without
// a word. The number is written after each commit and before its answers, so a store that comes
// back with a smaller one has lost acknowledged changes. It is synced at most kSyncPauseUs later:
// after a power cut the file may be behind the store, which says nothing, never ahead of it.
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

  /// The number in the file; nothing where there is no file. DATA_LOSS/STORE_MARK_DAMAGED.
  static Result<std::optional<int64_t>> read(const std::filesystem::path& path);
  /// Makes the file if it is missing. UNAVAILABLE/STORAGE_ERROR, RESOURCE_EXHAUSTED/STORAGE_FULL.
  static Result<CommitMark> open(const std::filesystem::path& path, int64_t number);

  CommitMark() = default;  // keeps nothing
  /// False, with errno, if the file cannot be written.
  bool write(int64_t number);
  /// Syncs what was written.
  bool sync();
  bool is_synced() const { return synced_; }

 private:
  UniqueFd fd_;
  bool synced_ = true;
};

}  // namespace trainyard::server
