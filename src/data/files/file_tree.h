// src/data/files/file_tree.h: the files of a folder or of an archive (tar, plain or by gzip, xz or
// zstd, and zip), one after another, in bounded memory. Nothing is ever written to a path from
// there.
//
// Hidden files and folders (a name that begins with a dot) and __MACOSX are passed over. What an
// archive must not hold is refused by ARCHIVE_UNSAFE: links and devices, absolute paths and "..",
// more than kTreeFilesMax entries, and content that grows beyond kArchiveRatioMax times the
// archive. A folder's links are followed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "src/base/result.h"

namespace trainyard {

class FileTree {
 public:
  virtual ~FileTree() = default;
  /// Goes on to the next file; false behind the last one. Refusals name the source and the file:
  /// DATASET_INVALID for a damaged or cut archive, ARCHIVE_UNSAFE.
  virtual Result<bool> next() = 0;
  /// Of the file that next() went to: relative, '/' between the parts, none of them empty, "." or
  /// "..". Bytes as they are, which need not be UTF-8.
  virtual const std::string& path() const = 0;
  /// Appends the file's next bytes to `out` until it has `bytes_max` or the file ends. False at the
  /// end.
  virtual Result<bool> read(std::string& out, size_t bytes_max) = 0;
  /// Begins again before the first file. The order is the same each time.
  virtual Status rewind() = 0;
};

/// `what` names the source in messages ("data").
Result<std::unique_ptr<FileTree>> open_file_tree(const std::filesystem::path& path,
                                                 const std::string& what);

/// The whole of the file that next() went to, which is refused beyond `bytes_max`. `place` names it
/// in messages.
Result<std::string> read_tree_file(FileTree& tree, size_t bytes_max, const std::string& place);

/// "data: 'cats/1.jpg'"
std::string place_in_tree(const std::string& what, const std::string& path);

}  // namespace trainyard
