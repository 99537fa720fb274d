// src/base/allowed_path.h: opens files and folders that clients name, if they are inside a folder
// that the operator allows.
//
// A path is opened from its allowed folder component by component. '..' and links are refused, so
// nothing outside can be reached, even if the folders change meanwhile. The opened file is then
// read through its descriptor. Errors do not reveal whether a path outside exists.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard {

struct AllowedPath {
  UniqueFd opened;
  bool folder = false;
  /// Returns a path in /proc that refers to the opened file as long as `opened` lives, even if its
  /// original name refers to another file meanwhile.
  std::filesystem::path path() const;
};

/// `field` names `path` in refusals: FAILED_PRECONDITION/SERVER_PATH_DISABLED if `roots` is empty,
/// PERMISSION_DENIED/SERVER_PATH_OUTSIDE for a path that is inside no root, NOT_FOUND/
/// SERVER_PATH_NOT_FOUND, PERMISSION_DENIED/SERVER_PATH_UNREADABLE, INVALID_ARGUMENT/
/// DATASET_INVALID for a link and for anything else that is neither file nor folder.
Result<AllowedPath> open_allowed_path(const std::string& path,
                                      std::span<const std::filesystem::path> roots,
                                      const std::string& field);

/// Two equal stamps mean that the file, or each file of the folder, is unchanged. Computed without
/// reading any content.
struct SourceStamp {
  std::string digest;     // SHA-256 of names, inodes, sizes and times
  int64_t changed_s = 0;  // the newest of the times, in seconds since 1970
};
/// Refuses a folder that contains a link: DATASET_INVALID.
Result<SourceStamp> stamp_of(const AllowedPath& path, const std::string& field);

/// Returns the SHA-256 of a file, or of the tar archive that a client would send for a folder.
Result<std::string> content_digest(const AllowedPath& path);

}  // namespace trainyard
