#include "server/store/schema_copy.h"

#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/store/migrations.h"
#include "server/store/state_lock.h"
#include "server/store/store_files.h"
#include "src/base/disk_space.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "trainyard.db.schema-";
constexpr std::string_view kCutSuffix = ".tmp";
// Free space required in addition to the copy, for the migration's log.
constexpr int64_t kRoomBytes = int64_t{16} << 20;
constexpr int kAnySchema = std::numeric_limits<int>::max();

fs::path copy_path(const fs::path& state_dir, int schema) {
  return state_dir / (std::string(kPrefix) + std::to_string(schema));
}

/// The complete copies, and the files of interrupted ones.
struct Found {
  std::vector<SchemaCopy> copies;
  std::vector<fs::path> cut;
};

Found list_copies(const fs::path& state_dir) {
  Found found;
  std::error_code ec;
  for (fs::directory_iterator it(state_dir, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const char* const last = name.data() + name.size();
    int schema = 0;
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), last, schema);
    if (error != std::errc()) continue;
    if (stop == last) found.copies.push_back({it->path(), schema});
    if (std::string_view(stop, last).starts_with(kCutSuffix)) found.cut.push_back(it->path());
  }
  return found;
}

std::string bytes_text(int64_t bytes) {
  return human_bytes(bytes) + " (" + std::to_string(bytes) + " bytes)";
}

Error no_room(const fs::path& state_dir, int schema, int64_t needed, const std::string& have) {
  Error e =
      make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL",
                 "the store in " + state_dir.string() + " has schema " + std::to_string(schema) +
                     " and is copied before this trainyardd upgrades it to schema " +
                     std::to_string(newest_schema_version()) + ": that needs " +
                     bytes_text(needed) + " on its disk, " + have +
                     "; free space there and start again, or run the earlier trainyardd: "
                     "nothing was changed");
  e.metadata = {{"needed_bytes", std::to_string(needed)}};
  return e;
}

// Copies all pages of `from` into the new file `to`. The copy is durable afterwards, because every
// Connection syncs its writes.
void copy_pages(Connection& from, const fs::path& to, const StoreOptions& options) {
  Connection copy(to, Connection::Mode::kCreate, options.busy_timeout_ms,
                  options.vfs.empty() ? nullptr : options.vfs.c_str());
  using Backup = Handle<sqlite3_backup, sqlite3_backup_finish>;
  Backup backup(sqlite3_backup_init(copy.get(), "main", from.get(), "main"));
  if (!backup) copy.fail(sqlite3_errcode(copy.get()));
  const int code = sqlite3_backup_step(backup.get(), -1);
  if (code != SQLITE_DONE) copy.fail(code);
  backup.reset();
  // The copied header selects WAL mode. This leaves it, so that the copy is a single file, which a
  // rename can put in place.
  copy.execute("PRAGMA journal_mode = DELETE");
}

/// Lists the workers of live attempts that still run, for a message; empty if there are none.
std::string live_workers(Connection& db, const IsAlive& is_alive) {
  std::string found;
  Query query(db,
              "SELECT jobs.id, attempts.pid, attempts.process_start FROM attempts"
              " JOIN jobs ON jobs.number = attempts.job"
              " WHERE attempts.end_time_us = 0 AND attempts.pid > 0");
  while (query.step()) {
    if (!is_alive(static_cast<int32_t>(query.integer(1)), query.integer(2))) continue;
    found += (found.empty() ? "" : ", ") + query.text(0) + " (pid " + query.text(1) + ")";
  }
  return found;
}

// Turns the store into a single file without a log, so that a rename can replace it. SQLite would
// apply a log that stayed to the new file.
Status fold(std::unique_ptr<Connection> db, const fs::path& state_dir, Files& files) {
  const fs::path path = store_path(state_dir);
  if (db->query_text("PRAGMA wal_checkpoint(TRUNCATE)") != "0")
    return make_error(ErrorCode::kUnavailable, "STORE_BUSY",
                      path.string() + " is in use by another program: try again");
  // From now on a missing log is no error.
  if (Status s = mark_closed(state_dir); !s.ok()) return s;
  // Removes the commit mark, because it counts more commits than the copy has. It must be removed
  // before the journal mode changes: after an interrupted change, a start would compare the mark
  // through a read-only connection, which cannot roll the change back.
  if (Status s = files.remove_all(commit_mark_path(state_dir)); !s.ok()) return s;
  if (Status s = files.sync_directory(state_dir); !s.ok()) return s;
  const bool folded = db->query_text("PRAGMA journal_mode = DELETE") == "delete";
  db.reset();
  fs::path log = path;
  log += "-wal";
  std::error_code ec;
  if (!folded || fs::exists(log, ec))
    return make_error(ErrorCode::kUnavailable, "STORE_BUSY",
                      path.string() + " is in use by another program: try again");
  return {};
}

Status exchange(const fs::path& state_dir, const SchemaCopy& copy, const SchemaCopy& upgraded,
                Files& files) {
  // An interrupted attempt may have left this file.
  if (Status s = files.remove_all(upgraded.path); !s.ok()) return s;
  if (Status s = files.link_file(store_path(state_dir), upgraded.path); !s.ok()) return s;
  if (Status s = files.sync_directory(state_dir); !s.ok()) return s;
  return files.rename_durable(copy.path, store_path(state_dir));
}

}  // namespace

std::optional<SchemaCopy> find_schema_copy(const fs::path& state_dir, int schema) {
  std::optional<SchemaCopy> newest;
  for (SchemaCopy& copy : list_copies(state_dir).copies) {
    if (copy.schema != schema && (!newest || copy.schema > newest->schema)) newest = copy;
  }
  return newest;
}

Status remove_cut_copies(const fs::path& state_dir, int schema, Files& files) {
  Found found = list_copies(state_dir);
  for (const SchemaCopy& copy : found.copies) {
    if (copy.schema == schema) found.cut.push_back(copy.path);
  }
  for (const fs::path& path : found.cut) {
    if (Status s = files.remove_all(path); !s.ok()) return s;
  }
  return {};
}

Result<SchemaCopy> copy_before_migration(Connection& db, const StoreOptions& options,
                                         Files& files) {
  SchemaCopy copy;
  copy.schema = schema_version(db);
  copy.path = copy_path(options.state_dir, copy.schema);
  fs::path temporary = copy.path;
  temporary += kCutSuffix;
  const int64_t needed = kRoomBytes + std::stoll(db.query_text("PRAGMA page_size")) *
                                          std::stoll(db.query_text("PRAGMA page_count"));
  const std::optional<int64_t> free_bytes = options.free_bytes(options.state_dir);
  if (free_bytes && *free_bytes < needed)
    return no_room(options.state_dir, copy.schema, needed,
                   "which has " + bytes_text(*free_bytes) + " free");
  try {
    copy_pages(db, temporary, options);
  } catch (const SqliteError& e) {
    (void)remove_cut_copies(options.state_dir, copy.schema, files);
    if (!e.is_full()) throw;
    return no_room(options.state_dir, copy.schema, needed, "which is full");
  }
  if (Status s = files.rename_durable(temporary, copy.path); !s.ok()) return s.error();
  for (const SchemaCopy& other : list_copies(options.state_dir).copies) {
    if (other.schema == copy.schema) continue;
    if (Status s = files.remove_all(other.path); !s.ok()) return s.error();
  }
  return copy;
}

Error damaged_schema_copy(const SchemaCopy& copy, const std::string& what) {
  return make_error(ErrorCode::kDataLoss, "SCHEMA_COPY_DAMAGED",
                    copy.path.string() + ", the copy from before an upgrade, is damaged (" + what +
                        "): only a backup can restore schema " + std::to_string(copy.schema) +
                        "; remove it");
}

Result<std::unique_ptr<Connection>> open_schema_copy(const SchemaCopy& copy) {
  try {
    auto db = std::make_unique<Connection>(copy.path, Connection::Mode::kAlone, 0);
    if (Status s = check_schema(*db, copy.path.string(), kAnySchema); !s.ok())
      return damaged_schema_copy(copy, "it is not a store of Trainyard");
    if (const int schema = schema_version(*db); schema != copy.schema)
      return damaged_schema_copy(copy, "it has schema " + std::to_string(schema));
    return db;
  } catch (const SqliteError& e) {
    return damaged_schema_copy(copy, e.what());
  }
}

Result<UndoneUpgrade> undo_upgrade(const fs::path& state_dir, const IsAlive& is_alive,
                                   Files& files) {
  const fs::path path = store_path(state_dir);
  std::error_code ec;
  if (!fs::exists(path, ec))
    return make_error(ErrorCode::kFailedPrecondition, "STORE_MISSING",
                      path.string() + " is missing: there is no upgrade to undo here");
  ASSIGN_OR_RETURN(const StateLock lock, StateLock::take(state_dir));
  StoreOptions options;
  options.state_dir = state_dir;
  try {
    ASSIGN_OR_RETURN(std::unique_ptr<Connection> db, open_writing(options));
    if (Status s = check_schema(*db, path.string(), kAnySchema); !s.ok()) return s.error();
    UndoneUpgrade undone;
    undone.upgraded.schema = schema_version(*db);
    undone.upgraded.path = copy_path(state_dir, undone.upgraded.schema);
    const std::optional<SchemaCopy> copy = find_schema_copy(state_dir, undone.upgraded.schema);
    if (!copy)
      return make_error(ErrorCode::kFailedPrecondition, "SCHEMA_COPY_NOT_FOUND",
                        "there is no copy from before an upgrade next to " + path.string() + " (" +
                            std::string(kPrefix) + "N); restore a backup instead");
    if (copy->schema > newest_schema_version())
      return make_error(ErrorCode::kFailedPrecondition, "SCHEMA_COPY_NEWER",
                        copy->path.string() +
                            " is newer than this trainyardd, which supports "
                            "schemas only up to " +
                            std::to_string(newest_schema_version()) +
                            "; run this command with the newer trainyardd to restore it");
    undone.schema = copy->schema;
    {
      ASSIGN_OR_RETURN(const std::unique_ptr<Connection> copied, open_schema_copy(*copy));
      if (const std::string answer = copied->query_text("PRAGMA quick_check(1)"); answer != "ok")
        return damaged_schema_copy(*copy, answer);
    }
    // The next report of a live worker would not follow the last report that the copy has stored.
    if (const std::string workers = live_workers(*db, is_alive); !workers.empty())
      return make_error(ErrorCode::kFailedPrecondition, "WORKERS_ALIVE",
                        "workers still run: " + workers +
                            "; start the trainyardd that ran last and stop it with SIGTERM, which "
                            "ends them, or kill them");
    if (Status s = fold(std::move(db), state_dir, files); !s.ok()) return s.error();
    if (Status s = exchange(state_dir, *copy, undone.upgraded, files); !s.ok()) return s.error();
    return undone;
  } catch (const SqliteError& e) {
    return store_error(path, e);
  }
}

Error add_undo_hint(Error error, const fs::path& state_dir, int schema, int schema_newest) {
  if (error.reason != "STORE_NEWER") return error;
  const std::optional<SchemaCopy> copy = find_schema_copy(state_dir, schema);
  if (!copy || copy->schema > schema_newest) return error;
  error.message += ", or restore its copy from before the upgrade, " +
                   copy->path.filename().string() +
                   ", with 'trainyardd --undo-upgrade', without the data stored since then";
  return error;
}

}  // namespace trainyard::server
