// server/store/migrations.h: the store's schema, defined by numbered SQL files
// (server/store/migrations/).
//
// PRAGMA user_version is the number of the newest migration that was applied; PRAGMA application_id
// distinguishes a Trainyard store from other SQLite files.
#pragma once

#include <span>

#include "server/store/sqlite.h"

namespace trainyard::server {

inline constexpr int kApplicationId = 0x54594152;  // "TYAR"
/// Returns the SQL of each migration, in order from 1.
std::span<const char* const> migrations();
int newest_schema_version();

/// Returns the schema version of the store; 0 if it has no tables. Throws SqliteError.
int schema_version(Connection& db);
/// Checks, without writing, that migrate() would accept the file. Errors:
/// FAILED_PRECONDITION/STORE_NEWER, STORE_FOREIGN. `name` is the file's name for the message.
Status check_schema(Connection& db, const std::string& name, int newest = newest_schema_version());
/// Migrates a new or older store to the schema `newest` in one transaction, so that a crash leaves
/// it at its old schema or at `newest`. Errors: those of check_schema().
Status migrate(Connection& db, const std::string& name, int newest = newest_schema_version());

}  // namespace trainyard::server
