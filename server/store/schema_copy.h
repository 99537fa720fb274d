// server/store/schema_copy.h: the copy of the store that an upgrade leaves beside it, and the way
// back to it.
//
//   trainyard.db.schema-8   the store as it was when it had schema 8
//
// Before a migration the whole store is copied, its log included, under another name that becomes
// this one when the copy is durable. All migrations of a start are one transaction, so the store is
// at the copy's schema or at the newest, and what has the store's own schema is left of a try that
// was cut short: the next start removes it and begins again. One copy is kept, the newest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/store/sqlite.h"
#include "server/store/store.h"
#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::server {

struct SchemaCopy {
  std::filesystem::path path;
  int schema = 0;
};

/// The copy beside a store of schema `schema`, which is of another one; nothing if there is none.
std::optional<SchemaCopy> find_schema_copy(const std::filesystem::path& state_dir, int schema);

/// Copies the older store behind `db`, durably, and removes copies of other schemas. Throws
/// SqliteError. RESOURCE_EXHAUSTED/STORAGE_FULL says how many bytes are needed; then nothing was
/// changed.
Result<SchemaCopy> copy_before_migration(Connection& db, const StoreOptions& options,
                                         Files& files = local_files());

/// Removes what a copy that was cut short left, and a copy of the store's own schema.
Status remove_cut_copies(const std::filesystem::path& state_dir, int schema,
                         Files& files = local_files());

/// Opens a copy to read it, and checks that it is a store of the schema that its name says.
/// DATA_LOSS/SCHEMA_COPY_DAMAGED. Changes nothing.
Result<std::unique_ptr<Connection>> open_schema_copy(const SchemaCopy& copy);

/// DATA_LOSS/SCHEMA_COPY_DAMAGED: what is wrong, and what to do.
Error damaged_schema_copy(const SchemaCopy& copy, const std::string& what);

/// Whether the process that started at `process_start` (field 22 of /proc/PID/stat) still runs.
using IsAlive = std::function<bool(int32_t pid, int64_t process_start)>;

struct UndoneUpgrade {
  int schema = 0;       // of the store that is in place now
  SchemaCopy upgraded;  // the store that was in place, kept beside it
};

/// Puts the copy in the store's place and keeps the store as the copy. The change is one rename: a
/// crash leaves one or the other, and the call can be repeated. No daemon may be using the folder.
/// FAILED_PRECONDITION/NO_SCHEMA_COPY, WORKERS_ALIVE (`is_alive`), SCHEMA_COPY_NEWER (than this
/// program); DATA_LOSS/SCHEMA_COPY_DAMAGED; of Store::open those of the lock and of a damaged
/// store.
Result<UndoneUpgrade> undo_upgrade(const std::filesystem::path& state_dir, const IsAlive& is_alive,
                                   Files& files = local_files());

/// STORE_NEWER of a store of schema `schema` with the way back in its message, if a program of
/// schema `schema_newest` can take it. Other errors as they are.
Error tell_way_back(Error error, const std::filesystem::path& state_dir, int schema,
                    int schema_newest);

}  // namespace trainyard::server
