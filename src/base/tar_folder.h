// src/base/tar_folder.h: a folder as a tar archive, generated while it is read.
//
// The archive contains the folder's files and its empty folders, as src/base/folder_files.h lists
// them, without their owners, modes and times. So the same files give the same bytes on every
// machine, and the server recognizes content that it already has. The Python client (_tar.py)
// generates the same bytes. Format: POSIX ustar; a path that is too long for its header is stored
// in a pax header.
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
  /// Lists the files and their sizes. Refusals: DATASET_INVALID for a folder without files or with
  /// one above 8 GiB, and those of list_folder_files().
  static Result<TarFolder> open(const std::filesystem::path& folder);
  int64_t size() const { return size_; }
  /// Appends `count` bytes of the archive, from `offset` on, to `out`. Not thread-safe. Returns
  /// DATASET_INVALID if a file cannot be opened or has become shorter.
  Status read(int64_t offset, int64_t count, std::string& out);

 private:
  struct Part {
    int64_t begin;  // offset of the file's header in the archive
    std::string path;
    int64_t file_bytes;
  };
  explicit TarFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Status read_file(size_t part, int64_t offset, int64_t count, std::string& out);

  std::filesystem::path folder_;
  std::vector<Part> parts_;
  int64_t size_ = 0;
  size_t open_part_ = SIZE_MAX;  // index of the part whose file is open in file_
  UniqueFd file_;
};

/// Returns the header block of a file of `bytes` bytes, or of a folder if the path ends with '/',
/// with the pax header if the path needs one.
std::string tar_header(const std::string& path, int64_t bytes);

}  // namespace trainyard
