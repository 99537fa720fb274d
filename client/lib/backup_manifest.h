// client/lib/backup_manifest.h: the manifest, which is the last entry of a backup's archive.
//
// A backup is a tar archive of a state folder's files, followed by manifest.json, which lists the
// files with size and SHA-256. An archive without a manifest was truncated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::client {

inline constexpr const char* kBackupManifestName = "manifest.json";
inline constexpr int kBackupFormatVersion = 1;

struct BackupFile {
  std::string path;
  int64_t size_bytes = 0;
  std::string sha256;
};

struct BackupManifest {
  int format_version = kBackupFormatVersion;
  std::string server_version;
  std::string created;  // RFC 3339, UTC
  int64_t commit = 0;   // the number of the store's newest commit
  std::vector<BackupFile> files;
};

std::string to_json(const BackupManifest& manifest);
/// Errors: DATA_LOSS/BACKUP_DAMAGED; FAILED_PRECONDITION/BACKUP_NEWER if a later version wrote the
/// format.
Result<BackupManifest> parse_backup_manifest(std::string_view text);

/// Returns whether a backup may contain a file with this path: it is relative, has plain names, and
/// is in one of the folders of a state folder or is one of its files. Backup and restore never
/// write other paths.
bool is_backup_path(std::string_view path);

Error backup_damaged(const std::string& what);

}  // namespace trainyard::client
