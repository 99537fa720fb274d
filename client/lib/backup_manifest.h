// client/lib/backup_manifest.h: the last entry of a backup's archive, which makes it one.
//
// A backup is a tar archive of a state folder's files, and at its end manifest.json: what is in it,
// with each file's size and SHA-256. An archive without it was cut.
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
  int64_t commit = 0;   // number of the store's newest commit
  std::vector<BackupFile> files;
};

std::string to_json(const BackupManifest& manifest);
/// DATA_LOSS/BACKUP_DAMAGED; FAILED_PRECONDITION/BACKUP_NEWER for a format of a later version.
Result<BackupManifest> parse_backup_manifest(std::string_view text);

/// Whether a backup may hold a file of this path: relative, of plain names, in one of the folders
/// of a state folder or one of its files. Nothing else is ever written by a backup or a restore.
bool is_backup_path(std::string_view path);

Error backup_damaged(const std::string& what);

}  // namespace trainyard::client
