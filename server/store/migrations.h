// server/store/migrations.h: the store's schema, by numbered files (server/store/migrations/).
//
// PRAGMA user_version is the number of the newest migration that was applied; PRAGMA application_id
// distinguishes a Trainyard store from other SQLite files.
#pragma once

#include <span>

#include "server/store/sqlite.h"

namespace trainyard::server {

inline constexpr int kApplicationId = 0x54594152;  // "TYAR"
/// The SQL of each migration, in order from 1.
std::span<const char* const> migrations();
int newest_schema_version();

/// 0 of a store without tables. Throws SqliteError.
int schema_version(Connection& db);
/// FAILED_PRECONDITION/STORE_NEWER, STORE_FOREIGN for what migrate() would not take. `name` is the
/// file's, for the message. Only reads.
Status check_schema(Connection& db, const std::string& name, int newest = newest_schema_version());
/// Migrates a new or older store to the schema `newest`, all in one transaction: a crash leaves it
/// as it was, or at the newest. Refusals: check_schema().
Status migrate(Connection& db, const std::string& name, int newest = newest_schema_version());

}  // namespace trainyard::server
