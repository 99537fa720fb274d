// src/base/disk_space.h: how much room is left, and how much is taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trainyard {

/// Bytes that this process may still write to the folder's file system; nothing if that cannot be
/// told.
std::optional<int64_t> free_bytes_of(const std::filesystem::path& folder);

/// Of a file, or of all files in and below a folder; 0 of what is not there.
int64_t bytes_below(const std::filesystem::path& path);

}  // namespace trainyard
