// src/base/allowed_path.h: files and folders named by clients, inside folders that the operator
// allows.
//
// A path is opened from its allowed folder component by component; '..' and links are refused, so
// nothing outside can be reached, even if the folders change meanwhile. The opened file is then
// read through its descriptor. Whether something outside exists is not told.
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
  /// Leads to the opened file, whatever its name refers to by now, as long as `opened` lives.
  std::filesystem::path path() const;
};

/// `field` names `path` in refusals: FAILED_PRECONDITION/SERVER_PATH_DISABLED without roots,
/// PERMISSION_DENIED/SERVER_PATH_OUTSIDE for what is not inside one, NOT_FOUND/
/// SERVER_PATH_NOT_FOUND, PERMISSION_DENIED/SERVER_PATH_UNREADABLE, INVALID_ARGUMENT/
/// DATASET_INVALID for what is neither file nor folder, and for a link.
Result<AllowedPath> open_allowed_path(const std::string& path,
                                      std::span<const std::filesystem::path> roots,
                                      const std::string& field);

/// Tells whether the file, or a file of the folder, has changed, without reading its content.
struct SourceStamp {
  std::string digest;     // of names, inodes, sizes and times
  int64_t changed_s = 0;  // the newest of the times, in seconds since 1970
};
/// DATASET_INVALID for a folder with a link below it.
Result<SourceStamp> stamp_of(const AllowedPath& path, const std::string& field);

/// SHA-256 of a file, or of a folder as the tar that a client would send of it.
Result<std::string> content_digest(const AllowedPath& path);

}  // namespace trainyard
