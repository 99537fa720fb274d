// src/base/allowed_path.h: files and folders that somebody else names, inside folders that the
// operator allows.
//
// A path is walked from its allowed folder part by part, and every part is what it seems to be:
// '..' and links are refused, so nothing outside can be reached, whoever changes the folders
// meanwhile. What was opened is then read by way of its descriptor. Whether something outside
// exists is not told.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard {

struct AllowedPath {
  UniqueFd opened;
  bool folder = false;
  /// Leads to what was opened, whatever the name stands for by now; as long as `opened` lives.
  std::filesystem::path path() const;
};

/// `field` names `path` in refusals: FAILED_PRECONDITION/SERVER_PATH_DISABLED without roots,
/// PERMISSION_DENIED/SERVER_PATH_OUTSIDE for what is not inside one, NOT_FOUND/
/// SERVER_PATH_NOT_FOUND, PERMISSION_DENIED/SERVER_PATH_UNREADABLE, INVALID_ARGUMENT/
/// DATASET_INVALID for what is neither file nor folder, and for a link.
Result<AllowedPath> open_allowed_path(const std::string& path,
                                      std::span<const std::filesystem::path> roots,
                                      const std::string& field);

/// What tells whether the file, or a file of the folder, has changed, its content apart: a digest
/// of names, inodes, sizes and times. DATASET_INVALID for a folder with a link below it.
Result<std::string> stamp_of(const AllowedPath& path, const std::string& field);

/// SHA-256 of a file, or of a folder as the tar that a client would send of it.
Result<std::string> content_digest(const AllowedPath& path);

}  // namespace trainyard
