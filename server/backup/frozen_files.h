// server/backup/frozen_files.h: files kept as they are now, by hard links in a folder beside them.
//
// Nothing in the state folder is written once it has its name, only replaced or removed, so a link
// keeps a file's content at no cost while workers prune and users delete.
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
  std::string sha256;  // what the server knows it to be; empty if it does not
};

class FrozenFiles {
 public:
  /// `links` exists, on the file system of `state`.
  FrozenFiles(std::filesystem::path state, std::filesystem::path links)
      : state_(std::move(state)), links_(std::move(links)) {}

  /// Links a file, or all files of a folder and of those in it. A second time costs little. False
  /// if it is not there, or was removed meanwhile and is not in the links either.
  /// UNAVAILABLE/STORAGE_ERROR.
  Result<bool> freeze(const std::string& path);
  /// The files behind a path that was frozen, by path. Temporary files are not among them.
  Result<std::vector<FrozenFile>> list(const std::string& path) const;
  /// Forgets what is behind a path.
  void forget(const std::string& path);
  /// Where a path of the state folder is held. The path leads neither out of that folder nor to all
  /// of it.
  std::filesystem::path link_of(const std::string& path) const;

 private:
  const std::filesystem::path state_;
  const std::filesystem::path links_;
};

}  // namespace trainyard::server
