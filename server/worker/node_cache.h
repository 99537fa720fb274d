// server/worker/node_cache.h: a folder of a host on which workers from elsewhere run, shared by all
// of them.
//
//   datasets/<digest>/      the files of a dataset, whole: put together as <digest>.tmp, checked,
//                           renamed
//   datasets/<digest>.lock  held while the dataset is pulled (alone) and while it is used (shared);
//                           its time is that of the last use
//   work/<task>/            what a worker reads and writes beside that, until it ends
//   work/<task>.lock        held while the worker lives: what a killed one leaves, the next sweeps
//   algorithms/             the choices of the host's GPU libraries
//
// Locks are flock()s: they end with their process, however that ends.
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

/// A dataset's folder, which stays while this exists.
struct CachedDataset {
  std::filesystem::path folder;
  UniqueFd lock;
};

/// A worker's own folder, which is removed with this.
class WorkFolder {
 public:
  WorkFolder() = default;
  WorkFolder(WorkFolder&&) noexcept = default;
  WorkFolder& operator=(WorkFolder&&) noexcept = default;
  ~WorkFolder();
  const std::filesystem::path& path() const { return path_; }
  /// Now; nothing is left for the destructor.
  void remove();

 private:
  friend class NodeCache;
  std::filesystem::path path_;
  UniqueFd lock_;
};

class NodeCache {
 public:
  /// `bytes_max`: of datasets that nobody uses just now.
  NodeCache(std::filesystem::path root, int64_t bytes_max)
      : root_(std::move(root)), bytes_max_(bytes_max) {}

  /// The dataset's folder. If it is not there, `pull(folder)` fills one, which may hold what an
  /// earlier pull left; several workers do not pull the same one at once. `pull` first says, by
  /// `make_room`, how many bytes it needs: datasets that were not used for longest go.
  using MakeRoom = std::function<void(int64_t bytes)>;
  using Pull =
      std::function<Status(const std::filesystem::path& folder, const MakeRoom& make_room)>;
  Result<CachedDataset> hold_dataset(const std::string& digest, const Pull& pull,
                                     const std::stop_token& stop) const;

  /// A new, empty one; sweeps those of workers that were killed. FAILED_PRECONDITION/TASK_RUNNING
  /// if the task has one.
  Result<WorkFolder> make_work(const std::string& task) const;

  std::filesystem::path algorithms() const { return root_ / "algorithms"; }

 private:
  std::filesystem::path datasets() const { return root_ / "datasets"; }
  void make_room(int64_t bytes, const std::string& for_digest) const;

  const std::filesystem::path root_;
  const int64_t bytes_max_;
};

/// True for what may be a file's name here: letters, digits, '-' and '_', at most 128.
bool is_plain_name(const std::string& name);

}  // namespace trainyard
