#include "server/store/sqlite.h"

#include <cerrno>
#include <utility>

namespace trainyard::server {

bool SqliteError::is_full() const {
  // SQLite reports ENOSPC as FULL, but a quota or a file size limit as an I/O error.
  return primary() == SQLITE_FULL ||
         (primary() == SQLITE_IOERR &&
          (system_errno == ENOSPC || system_errno == EDQUOT || system_errno == EFBIG));
}

Error to_error(const SqliteError& e) {
  if (e.is_full())
    return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL",
                      "The server's disk is full: nothing was stored; free space and try again.");
  if (e.is_busy())
    return make_error(ErrorCode::kUnavailable, "STORE_BUSY",
                      "The server's store is locked by another program: try again.");
  if (e.primary() == SQLITE_CORRUPT || e.primary() == SQLITE_NOTADB)
    return make_error(ErrorCode::kDataLoss, "STORE_CORRUPT",
                      "The server's store is damaged: its operator must restore it.");
  return make_error(ErrorCode::kUnavailable, "STORE_FAILED",
                    std::string("The server's store failed: ") + sqlite3_errstr(e.primary()) + ".");
}

Connection::Connection(const std::filesystem::path& path, Mode mode, int64_t busy_timeout_ms,
                       const char* vfs) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const bool reads = mode == Mode::kReadOnly || mode == Mode::kAlone;
  flags |= reads ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  if (mode == Mode::kAlone) vfs = "unix-none";
  if (mode == Mode::kCreate) flags |= SQLITE_OPEN_CREATE;
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, vfs);
  db_.reset(raw);
  if (code != SQLITE_OK) fail(code);
  sqlite3_busy_timeout(raw, static_cast<int>(busy_timeout_ms));
  sqlite3_db_config(raw, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(raw, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // Only the writer checkpoints, at times of its choice (writer.cc); store.h says why.
  sqlite3_db_config(raw, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  if (const int c = sqlite3_wal_autocheckpoint(raw, 0); c != SQLITE_OK) fail(c);
  // Must come before any read.
  if (mode == Mode::kAlone) execute("PRAGMA locking_mode = EXCLUSIVE");
  execute("PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;");
}

void Connection::execute(const char* script) {
  if (const int code = sqlite3_exec(db_.get(), script, nullptr, nullptr, nullptr);
      code != SQLITE_OK)
    fail(code);
}

std::string Connection::query_text(const char* sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql, -1, &raw, nullptr);
  const Statement statement(raw);
  if (code != SQLITE_OK) fail(code);
  const int step = sqlite3_step(raw);
  if (step == SQLITE_DONE) return "";
  if (step != SQLITE_ROW) fail(step);
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(raw, 0));
  return text == nullptr ? "" : text;
}

sqlite3_stmt* Connection::prepared(const char* sql) {
  Statement& slot = statements_[sql];
  if (!slot) {
    sqlite3_stmt* raw = nullptr;
    const int code =
        sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
    slot.reset(raw);
    if (code != SQLITE_OK) fail(code);
  }
  TRAINYARD_CHECK(!sqlite3_stmt_busy(slot.get()), std::string("statement in use: ") + sql);
  return slot.get();
}

void Connection::fail(int code) const {
  sqlite3* db = db_.get();
  std::string text = db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db);
  throw SqliteError(code, db == nullptr ? 0 : sqlite3_system_errno(db), text);
}

Query::~Query() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Query& Query::bind(int64_t value) {
  if (const int code = sqlite3_bind_int64(statement_, ++bound_, value); code != SQLITE_OK)
    db_.fail(code);
  return *this;
}

Query& Query::bind(std::string_view text) {
  // A null pointer would bind NULL, so an empty text is bound as "".
  const char* data = text.data() == nullptr ? "" : text.data();
  if (const int code =
          sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_STATIC, SQLITE_UTF8);
      code != SQLITE_OK)
    db_.fail(code);
  return *this;
}

Query& Query::bind_real(double value) {
  if (const int code = sqlite3_bind_double(statement_, ++bound_, value); code != SQLITE_OK) {
    db_.fail(code);
  }
  return *this;
}
Query& Query::bind_blob(std::string blob) {
  if (const int code =
          sqlite3_bind_blob64(statement_, ++bound_, blob.data(), blob.size(), SQLITE_TRANSIENT);
      code != SQLITE_OK)
    db_.fail(code);
  return *this;
}

bool Query::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) db_.fail(code);
  return false;
}

void Query::run() { TRAINYARD_CHECK(!step(), "a statement without rows returned one"); }

std::string_view Query::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  return {static_cast<const char*>(data), data == nullptr ? 0 : size};
}

Transaction::Transaction(Connection& db, Kind kind) : db_(db) {
  // IMMEDIATE takes the write lock here, so that a wait for another program's lock happens now and
  // not in the middle of the transaction.
  Query(db, kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN").run();
}

Transaction::~Transaction() {
  if (!open_ || !db_.in_transaction()) return;  // SQLite rolls back by itself after some failures
  (void)sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  Query(db_, "COMMIT").run();
  open_ = false;
}

}  // namespace trainyard::server
