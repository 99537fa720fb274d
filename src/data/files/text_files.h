// src/data/files/text_files.h: the texts of a folder's or an archive's .txt files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/files/file_tree.h"

namespace trainyard {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// True for the ending .txt, in any case.
bool is_text_path(std::string_view path);

/// The text of the tree's current file, at most `bytes_max`, without a byte order mark; UTF-8
/// unless `bytes`.
Result<std::string> read_text_file(FileTree& tree, const std::string& what, size_t bytes_max,
                                   bool bytes);

/// "data: byte 3 ('\xff') is not UTF-8; ..."
Status check_utf8(std::string_view text, const std::string& place);

/// Whether a file is a folder or begins as an archive does: zip, xz and zstd, or a tar, by gzip
/// too.
Result<bool> holds_files(const std::filesystem::path& path, const std::string& what);

}  // namespace trainyard
