// server/store/sqlite.h: wraps SQLite's C API in owning types.
//
// Inside server/store a failure of SQLite is the exception SqliteError, because nearly every line
// can fail and none of them can handle it. Two places catch it and convert it to an Error: the
// writer's loop (writer.cc) and StoreCore::read (store_core.h). Code outside the store does not see
// the exception.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

using Db = Handle<sqlite3, sqlite3_close_v2>;
using Statement = Handle<sqlite3_stmt, sqlite3_finalize>;

struct SqliteError : std::runtime_error {
  SqliteError(int extended_code, int last_errno, const std::string& text)
      : std::runtime_error(text), code(extended_code), system_errno(last_errno) {}
  int code;          // SQLite's extended error code
  int system_errno;  // errno of the last file operation that failed, or 0
  int primary() const { return code & 0xff; }
  bool is_full() const;  // disk full, quota or file size limit
  bool is_busy() const { return primary() == SQLITE_BUSY || primary() == SQLITE_LOCKED; }
};

/// Returns the error for callers of the store: STORAGE_FULL, STORE_BUSY, STORE_CORRUPT or
/// STORE_FAILED. Its message has no paths or SQL.
Error to_error(const SqliteError& e);

/// One connection, used by one thread at a time. Statements are prepared once and kept.
class Connection {
 public:
  // kAlone reads a store that no other process uses. It takes no file locks and keeps the log's
  // index in memory, so that no file next to the store is created or removed.
  enum class Mode { kCreate, kReadWrite, kReadOnly, kAlone };
  /// `vfs` names SQLite's file layer; null selects the default one.
  Connection(const std::filesystem::path& path, Mode mode, int64_t busy_timeout_ms,
             const char* vfs = nullptr);

  /// Runs a script of statements and ignores the rows that they return.
  void execute(const char* script);
  /// Returns the first column of the first row of a pragma or query; empty if there is no row. The
  /// statement is not cached.
  std::string query_text(const char* sql);
  /// Returns the cached prepared statement. `sql` must be a string literal, because its address is
  /// the cache key.
  sqlite3_stmt* prepared(const char* sql);

  bool in_transaction() const { return sqlite3_get_autocommit(db_.get()) == 0; }
  int64_t last_row() const { return sqlite3_last_insert_rowid(db_.get()); }
  // Returns the number of rows that the last statement changed.
  int64_t changes() const { return sqlite3_changes64(db_.get()); }
  sqlite3* get() const { return db_.get(); }
  [[noreturn]] void fail(int code) const;

 private:
  Db db_;  // outlives the statements
  std::unordered_map<const void*, Statement> statements_;
};

/// One use of a prepared statement: bind the parameters in order, step, read the columns. The
/// destructor resets the statement, so that no read transaction stays open. A second Query of the
/// same literal must not be created before that.
class Query {
 public:
  Query(Connection& db, const char* sql) : db_(db), statement_(db.prepared(sql)) {}
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  Query& bind(int64_t value);
  Query& bind(std::string_view text);  // not copied: must outlive the Query
  Query& bind_blob(std::string blob);  // copied
  Query& bind_real(double value);
  /// Executes to the next row. Returns false if there is none.
  bool step();
  /// Executes a statement that returns no rows.
  void run();

  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  double real(int column) const { return sqlite3_column_double(statement_, column); }
  std::string text(int column) const { return std::string(bytes(column)); }
  std::string_view bytes(int column) const;  // valid until the next step

 private:
  Connection& db_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

/// Rolls back unless commit() returned.
class Transaction {
 public:
  enum class Kind { kRead, kWrite };
  Transaction(Connection& db, Kind kind);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Connection& db_;
  bool open_ = true;
};

}  // namespace trainyard::server
