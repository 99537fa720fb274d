// src/data/files/archive_tree.h: the part of file_tree.h that reads archives, with libarchive.
#pragma once

#include "src/data/files/file_tree.h"

namespace trainyard {

Result<std::unique_ptr<FileTree>> open_archive_tree(const std::filesystem::path& path,
                                                    const std::string& what);

}  // namespace trainyard
