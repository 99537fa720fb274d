// client/lib/restore.h: a state folder from a backup's archive (client/lib/backup.h). Needs no
// server.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "client/lib/backup_manifest.h"
#include "src/base/result.h"

namespace trainyard::client {

/// Bytes of the files that were restored so far.
using RestoreObserver = std::function<void(int64_t done_bytes)>;

/// Writes the archive's files into `state_dir`, which is missing or empty; "-" reads standard
/// input. The archive is not trusted: only regular files with paths of a state folder, each once,
/// each with the size and the SHA-256 that the manifest at the end says, and none that it does not
/// name. The folder is made beside its place and gets its name when all of it is durable; an
/// empty one that cannot be replaced (a link, a mount point, in a folder of somebody else) is
/// filled in place, its store last. FAILED_PRECONDITION/STATE_DIR_NOT_EMPTY;
/// DATA_LOSS/BACKUP_DAMAGED; FAILED_PRECONDITION/BACKUP_NEWER; CANCELLED/INTERRUPTED;
/// NOT_FOUND/FILE_NOT_FOUND; STORAGE_FULL, STORAGE_ERROR.
Result<BackupManifest> restore_backup(const std::string& archive,
                                      const std::filesystem::path& state_dir,
                                      const RestoreObserver& observer, std::stop_token stop);

}  // namespace trainyard::client
