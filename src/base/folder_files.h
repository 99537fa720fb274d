// src/base/folder_files.h: the data files of a folder, always the same ones in the same order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

inline constexpr int64_t kTreeFilesMax = int64_t{1} << 22;  // of a folder; entries of an archive
inline constexpr int64_t kTreeDepthMax = 32;                // folders in folders
inline constexpr size_t kTreePathBytesMax = 1024;

/// True for one part of a path that is passed over with all below it: a name that begins with a
/// dot, or __MACOSX.
bool is_hidden(std::string_view name);

/// True for the endings .jpg, .jpeg and .png, in any case.
bool is_image_path(std::string_view path);
/// True if the path ends with one of `endings`, which are in lower case, in any case.
bool has_ending(std::string_view path, std::span<const std::string_view> endings);

/// The last part of a file's or folder's path, for people: "photos" for "data/photos/".
std::string shown_name(const std::filesystem::path& path);

/// Whether list_folder_files() could give this path: relative, without hidden, empty or dotted
/// parts.
bool is_listed_path(std::string_view path);

/// Paths below `root` of all files that are not hidden, '/' between the parts, sorted by their
/// bytes. Links are followed. `what` names the folder in messages. Refusals: DATASET_INVALID for
/// what is neither file nor folder and beyond the limits above, which also end a link that leads
/// back; STORAGE_ERROR.
Result<std::vector<std::string>> list_folder_files(const std::filesystem::path& root,
                                                   const std::string& what);

}  // namespace trainyard
