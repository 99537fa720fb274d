// tests/server/older_store.h: creates a store of an earlier schema with jobs, datasets and models,
// and prints all of its rows as text for comparison.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "server/store/migrations.h"
#include "server/store/sqlite.h"
#include "tests/support/source_path.h"

namespace trainyard::server {

/// Creates trainyard.db of schema `schema` in the folder: a store of schema 1, brought to `schema`
/// by the migrations. Half of its content is still in the write-ahead log, as after a kill.
inline void make_older_store(const std::filesystem::path& state_dir, int schema) {
  std::filesystem::create_directories(state_dir);
  std::ifstream in(testing::source_path("tests/golden/store_rows.sql"));
  const std::string rows{std::istreambuf_iterator<char>(in), {}};
  const std::filesystem::path path = state_dir / "trainyard.db";
  Connection db(path, Connection::Mode::kCreate, 100);
  ASSERT_TRUE(migrate(db, path.string(), 1).ok());
  db.execute(rows.c_str());
  ASSERT_EQ(db.query_text("PRAGMA journal_mode = WAL"), "wal");
  ASSERT_TRUE(migrate(db, path.string(), schema).ok());
  db.execute("INSERT INTO settings (key, value) VALUES ('commit', x'3431')");
  db.execute("UPDATE jobs SET message = 'in the log' WHERE id = 'open-1'");
}

/// Returns every row of every table as text, without the record that a daemon opened the store.
inline std::string rows_of(Connection& db) {
  std::vector<std::string> tables;
  {
    Query names(db, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
    while (names.step()) tables.push_back(names.text(0));
  }
  std::string all = "schema " + db.query_text("PRAGMA user_version") + "\n";
  for (const std::string& table : tables) {
    const std::string sql = "SELECT * FROM " + table + " ORDER BY 1, 2";
    sqlite3_stmt* raw = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(db.get(), sql.c_str(), -1, &raw, nullptr), SQLITE_OK) << sql;
    const Statement rows(raw);
    while (sqlite3_step(raw) == SQLITE_ROW) {
      std::string row = table;
      for (int i = 0; i < sqlite3_column_count(raw); ++i) {
        const auto* bytes = static_cast<const char*>(sqlite3_column_blob(raw, i));
        row += "|" + std::string(bytes == nullptr ? "" : bytes,
                                 static_cast<size_t>(sqlite3_column_bytes(raw, i)));
      }
      if (!row.starts_with("settings|opened|")) all += row + "\n";
    }
  }
  return all;
}
inline std::string rows_of(const std::filesystem::path& path) {
  Connection db(path, Connection::Mode::kReadWrite, 100);
  EXPECT_EQ(db.query_text("PRAGMA integrity_check"), "ok") << path;
  return rows_of(db);
}

}  // namespace trainyard::server
