// client/lib/restore.h: restores a state folder from a backup's archive (client/lib/backup.h).
// Needs no server.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "client/lib/backup_manifest.h"
#include "src/base/result.h"

namespace trainyard::client {

/// Receives the number of bytes of all files restored so far.
using RestoreObserver = std::function<void(int64_t done_bytes)>;

/// Writes the archive's files into `state_dir`, which must be missing or empty; "-" reads standard
/// input. The archive is not trusted: it may only have regular files with paths of a state folder,
/// each once, each with size and SHA-256 as in the manifest at its end, and none that the manifest
/// does not list. The files are first written to a new folder next to `state_dir`, which is renamed
/// once everything is durable. An empty folder that cannot be replaced (a link, a mount point, or
/// in a folder without write permission) is filled in place, its store last. Errors:
/// FAILED_PRECONDITION/STATE_DIR_NOT_EMPTY; DATA_LOSS/BACKUP_DAMAGED;
/// FAILED_PRECONDITION/BACKUP_NEWER; CANCELLED/INTERRUPTED; NOT_FOUND/FILE_NOT_FOUND; STORAGE_FULL,
/// STORAGE_ERROR.
Result<BackupManifest> restore_backup(const std::string& archive,
                                      const std::filesystem::path& state_dir,
                                      const RestoreObserver& observer, std::stop_token stop);

}  // namespace trainyard::client
