// src/base/folder_files.h: lists the data files of a folder in a fixed order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

inline constexpr int64_t kTreeFilesMax = int64_t{1} << 22;  // files in a folder or an archive
inline constexpr int64_t kTreeDepthMax = 32;                // levels of nested folders
inline constexpr size_t kTreePathBytesMax = 1024;

/// Returns true for a name of a file or folder that is ignored, together with everything below it:
/// one that begins with a dot, or that systems, network storages, clouds or editors leave in
/// folders, such as Thumbs.db or @eaDir. `name` is one component of a path.
bool is_ignored_name(std::string_view name);

/// Returns true for the endings .jpg, .jpeg and .png, in upper or lower case.
bool is_image_path(std::string_view path);
/// Returns true if the path ends with one of `endings`, which are in lower case. The path's case is
/// ignored.
bool has_ending(std::string_view path, std::span<const std::string_view> endings);

/// Returns the last component of a file's or folder's path, for messages: "photos" for
/// "data/photos/".
std::string shown_name(const std::filesystem::path& path);

/// Returns whether list_folder_files() could return this path: relative, with no component that is
/// empty, "." or ".." or ignored.
bool is_listed_path(std::string_view path);

/// Paths relative to a folder, with '/' between the components, sorted by their bytes.
struct FolderListing {
  std::vector<std::string> files;
  std::vector<std::string> empty_folders;  // folders that contain nothing but ignored names
};
/// Lists everything below `root` that is not ignored. Links to places below `root` are followed.
/// `what` names the folder in messages. Refusals: DATASET_INVALID for a link to another place, for
/// an entry that is neither file nor folder and beyond
/// the limits above, which also end the walk if links form a loop; STORAGE_ERROR.
Result<FolderListing> list_folder(const std::filesystem::path& root, const std::string& what);

/// Returns the files of list_folder().
Result<std::vector<std::string>> list_folder_files(const std::filesystem::path& root,
                                                   const std::string& what);

}  // namespace trainyard
