// server/worker/node_cache.h: a folder that all remote workers on a host share.
//
//   datasets/<digest>/      the files of a dataset, always complete: they are collected in
//                           <digest>.tmp, checked and renamed
//   datasets/<digest>.lock  locked while the dataset is pulled (exclusive) or used (shared); its
//                           modification time is the time of the last use
//   work/<task>/            the other files that a worker reads and writes, until it ends
//   work/<task>.lock        locked while the worker lives; the next worker deletes the folders of
//                           killed ones
//   algorithms/             stored choices of algorithms of the host's GPU libraries
//
// The locks are flock()s, which the kernel releases when their process ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard {

/// A dataset's folder, which is not deleted while this object exists.
struct CachedDataset {
  std::filesystem::path folder;
  UniqueFd lock;
};

/// A worker's own folder, which the destructor deletes.
class WorkFolder {
 public:
  WorkFolder() = default;
  WorkFolder(WorkFolder&&) noexcept = default;
  WorkFolder& operator=(WorkFolder&&) noexcept = default;
  ~WorkFolder();
  const std::filesystem::path& path() const { return path_; }
  /// Deletes the folder immediately; the destructor then does nothing.
  void remove();

 private:
  friend class NodeCache;
  std::filesystem::path path_;
  UniqueFd lock_;
};

class NodeCache {
 public:
  /// Datasets that no worker uses are deleted while the cache is larger than `bytes_max`.
  NodeCache(std::filesystem::path root, int64_t bytes_max)
      : root_(std::move(root)), bytes_max_(bytes_max) {}

  using MakeRoom = std::function<void(int64_t bytes)>;
  using Pull =
      std::function<Status(const std::filesystem::path& folder, const MakeRoom& make_room)>;
  /// Returns the dataset's folder. If it does not exist, `pull` fills a folder, which may contain
  /// the files of an earlier, incomplete pull. Two workers never pull the same dataset at the same
  /// time. `pull` must first call `make_room` with the number of bytes that it needs; `make_room`
  /// deletes the least recently used datasets.
  Result<CachedDataset> lock_dataset(const std::string& digest, const Pull& pull,
                                     const std::stop_token& stop) const;

  /// Creates an empty work folder, and deletes the folders of killed workers.
  /// FAILED_PRECONDITION/TASK_RUNNING if a running worker has the task's folder.
  Result<WorkFolder> make_work(const std::string& task) const;

  std::filesystem::path algorithms() const { return root_ / "algorithms"; }

 private:
  std::filesystem::path datasets() const { return root_ / "datasets"; }
  void make_room(int64_t bytes, const std::string& for_digest) const;

  const std::filesystem::path root_;
  const int64_t bytes_max_;
};

/// Returns true if `name` may be a file's name in the cache: letters, digits, '-' and '_', at most
/// 128 bytes.
bool is_plain_name(const std::string& name);

}  // namespace trainyard
