// src/data/files/file_tree.h: reads the files of a folder or of an archive one after another, in
// bounded memory. Archives are zip, and tar, also compressed by gzip, xz or zstd. Nothing is ever
// written to a path from an archive.
//
// What is_ignored_name() names is skipped (src/base/folder_files.h). An archive is refused by
// ARCHIVE_UNSAFE if it contains links, devices, absolute paths, "..", more than kTreeFilesMax
// entries, or content of more than kArchiveRatioMax times its size. In a folder, links are
// followed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

class FileTree {
 public:
  virtual ~FileTree() = default;
  /// Moves to the next file; returns false after the last one. Refusals name the source and the
  /// file: DATASET_INVALID for a damaged or truncated archive, ARCHIVE_UNSAFE.
  virtual Result<bool> next() = 0;
  /// Returns the path of the current file: relative, with '/' between the components, none of which
  /// is empty,
  /// "." or "..". It need not be UTF-8.
  virtual const std::string& path() const = 0;
  /// Appends the current file's next bytes to `out` until `out` has `bytes_max` bytes or the file
  /// ends. Returns false at the end of the file.
  virtual Result<bool> read(std::string& out, size_t bytes_max) = 0;
  /// Returns the paths of the folders that contain nothing but ignored names, sorted. They are
  /// known once next() has returned false.
  virtual std::vector<std::string> empty_folders() const = 0;
  /// Moves back before the first file. The order of files is the same each time.
  virtual Status rewind() = 0;
};

/// `what` names the source in messages ("data").
Result<std::unique_ptr<FileTree>> open_file_tree(const std::filesystem::path& path,
                                                 const std::string& what);

/// Returns the whole content of the current file. Refuses more than `bytes_max` bytes. `place`
/// names the file in messages.
Result<std::string> read_tree_file(FileTree& tree, size_t bytes_max, const std::string& place);

/// Returns the place of a file for messages: "data: 'cats/1.jpg'".
std::string place_in_tree(const std::string& what, const std::string& path);

}  // namespace trainyard
