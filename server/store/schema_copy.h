// server/store/schema_copy.h: the copy of the store that an upgrade keeps next to it, and the way
// to return to that copy.
//
//   trainyard.db.schema-8   the store as it was when it had schema 8
//
// Before a migration the whole store, including its log, is copied to a temporary name. When the
// copy is durable, it is renamed. All migrations of a start are one transaction, so the store has
// either the copy's schema or the newest. A copy with the store's own schema is the remainder of an
// interrupted upgrade; the next start removes it and upgrades again. Only the newest copy is kept.
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

/// Returns the newest copy whose schema differs from `schema`, the store's own; nothing if there is
/// none.
std::optional<SchemaCopy> find_schema_copy(const std::filesystem::path& state_dir, int schema);

/// Durably copies the store to which `db` is connected, and removes copies of other schemas. Throws
/// SqliteError. The error RESOURCE_EXHAUSTED/STORAGE_FULL says how many bytes are needed; nothing
/// was changed then.
Result<SchemaCopy> copy_before_migration(Connection& db, const StoreOptions& options,
                                         Files& files = local_files());

/// Removes the files of an interrupted copy, and a copy of the store's own schema.
Status remove_cut_copies(const std::filesystem::path& state_dir, int schema,
                         Files& files = local_files());

/// Opens a copy for reading and checks that it is a store of the schema in its name. Changes no
/// file. Error: DATA_LOSS/SCHEMA_COPY_DAMAGED.
Result<std::unique_ptr<Connection>> open_schema_copy(const SchemaCopy& copy);

/// Returns the error DATA_LOSS/SCHEMA_COPY_DAMAGED with a message that says what is wrong and what
/// to do.
Error damaged_schema_copy(const SchemaCopy& copy, const std::string& what);

/// Whether the process that started at `process_start` (field 22 of /proc/PID/stat) still runs.
using IsAlive = std::function<bool(int32_t pid, int64_t process_start)>;

struct UndoneUpgrade {
  int schema = 0;       // schema of the store that is in place now
  SchemaCopy upgraded;  // the store that was in place before, kept next to it
};

/// Replaces the store by its copy, and keeps the replaced store as a copy. The replacement is one
/// rename, so that a crash leaves the one or the other in place and the call can be repeated. No
/// daemon may be using the folder. Errors: FAILED_PRECONDITION/SCHEMA_COPY_NOT_FOUND, WORKERS_ALIVE
/// (decided by `is_alive`), SCHEMA_COPY_NEWER (newer than this program);
/// DATA_LOSS/SCHEMA_COPY_DAMAGED; and those of Store::open about the lock and a damaged store.
Result<UndoneUpgrade> undo_upgrade(const std::filesystem::path& state_dir, const IsAlive& is_alive,
                                   Files& files = local_files());

/// Adds to the message of a STORE_NEWER error how to return to the copy, if there is one that a
/// program with schema `schema_newest` can open. `schema` is the store's schema. Returns other
/// errors unchanged.
Error add_undo_hint(Error error, const std::filesystem::path& state_dir, int schema,
                    int schema_newest);

}  // namespace trainyard::server
