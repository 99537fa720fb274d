// src/data/files/text_files.h: reads the .txt files of a folder or an archive.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/files/file_tree.h"

namespace trainyard {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Returns true for the ending .txt, in upper or lower case.
bool is_text_path(std::string_view path);

/// Returns the text of the tree's current file without a byte order mark. Refuses more than
/// `bytes_max` bytes and, unless `bytes` is true, text that is not UTF-8.
Result<std::string> read_text_file(FileTree& tree, const std::string& what, size_t bytes_max,
                                   bool bytes);

/// Refuses text that is not UTF-8: "data: byte 3 ('\xff') is not UTF-8; ...".
Status check_utf8(std::string_view text, const std::string& place);

/// Returns whether `path` is a folder, or a file that begins as an archive does: zip, xz, zstd, or
/// tar, also compressed by gzip.
Result<bool> contains_files(const std::filesystem::path& path, const std::string& what);

}  // namespace trainyard
