// src/base/disk_space.h: free space of a file system, and space that files take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trainyard {

/// Returns the bytes that this process may still write to the folder's file system; nullopt if
/// statvfs() fails.
std::optional<int64_t> free_bytes_of(const std::filesystem::path& folder);

/// Returns the size in bytes of a file, or of all files in and below a folder; 0 if `path` does not
/// exist.
int64_t bytes_below(const std::filesystem::path& path);

}  // namespace trainyard
