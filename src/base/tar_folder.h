// src/base/tar_folder.h: a folder as a tar archive, generated while it is read.
//
// The archive holds the folder's files as src/base/folder_files.h lists them, nothing of their
// owners, modes and times: the same files give the same bytes on every machine, so that the server
// recognizes content that it has. The Python client (_tar.py) generates the same bytes. Format:
// POSIX ustar; a path that it has no room for stands in a pax header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard {

class TarFolder {
 public:
  /// Lists the files and their sizes. DATASET_INVALID if there are none; what list_folder_files()
  /// refuses.
  static Result<TarFolder> open(const std::filesystem::path& folder);
  int64_t size() const { return size_; }
  /// Appends `count` bytes of the archive from `offset` on. Not thread-safe. DATASET_INVALID if a
  /// file has become shorter.
  Status read(int64_t offset, int64_t count, std::string& out);

 private:
  struct Part {
    int64_t begin;  // in the archive
    std::string path;
    int64_t file_bytes;
  };
  explicit TarFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Status read_file(size_t part, int64_t offset, int64_t count, std::string& out);

  std::filesystem::path folder_;
  std::vector<Part> parts_;
  int64_t size_ = 0;
  size_t open_part_ = SIZE_MAX;  // whose file is open
  UniqueFd file_;
};

/// The header, or headers, before a file's bytes.
std::string tar_header(const std::string& path, int64_t bytes);

}  // namespace trainyard
