// server/backup/frozen_files.h: preserves the current content of files by hard links in a separate
// folder.
//
// Files in the state folder are never written after they have got their name, only replaced or
// removed. So a hard link preserves a file's content without a copy while workers prune checkpoints
// and users delete files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

struct FrozenFile {
  std::string path;  // relative to the state folder, and to the folder of links
  int64_t size_bytes = 0;
  std::string sha256;  // SHA-256 according to the store; empty if unknown
};

class FrozenFiles {
 public:
  /// The folder `links` must exist, on the same file system as `state`.
  FrozenFiles(std::filesystem::path state, std::filesystem::path links)
      : state_(std::move(state)), links_(std::move(links)) {}

  /// Links a file, or all files of a folder and its subfolders. Linking the same path again is
  /// fast. Returns false if the file is missing, or was removed meanwhile, and was not linked
  /// before. Error: UNAVAILABLE/STORAGE_ERROR.
  Result<bool> freeze(const std::string& path);
  /// Returns the linked files of a path that was frozen, sorted by path, without temporary files.
  Result<std::vector<FrozenFile>> list(const std::string& path) const;
  /// Removes the links of a path.
  void forget(const std::string& path);
  /// Returns the path of the hard link for `path`, which is relative to the state folder. A path
  /// that leads out of that folder, or is the whole folder, fails a check.
  std::filesystem::path link_of(const std::string& path) const;

 private:
  const std::filesystem::path state_;
  const std::filesystem::path links_;
};

}  // namespace trainyard::server
