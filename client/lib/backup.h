// client/lib/backup.h: saves a server's state as one archive.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "client/lib/client.h"

namespace trainyard::client {

struct BackupProgress {
  bool preparing = false;  // true while the server copies its store, before files arrive
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;
};
using BackupObserver = std::function<void(const BackupProgress&)>;

/// Requests a backup from the server and writes it to `file`, which appears complete or not at all
/// and replaces an earlier one; "-" is standard output. Each file's SHA-256 is compared with the
/// server's. Errors: those of the call; DATA_LOSS/BACKUP_DAMAGED if the server violates the
/// protocol; CANCELLED/INTERRUPTED after a stop; STORAGE_FULL, STORAGE_ERROR.
Result<v1::BackupResponse::Summary> write_backup(Client& client, const std::string& file,
                                                 const BackupObserver& observer,
                                                 std::stop_token stop);

}  // namespace trainyard::client
