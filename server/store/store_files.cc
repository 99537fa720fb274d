#include "server/store/store_files.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "server/store/dependencies.h"
#include "server/store/migrations.h"
#include "server/store/random_id.h"
#include "server/store/schema_copy.h"
#include "server/store/state_files.h"
#include "server/store/store_core.h"
#include "src/base/files.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

// A start runs a full check only on stores up to this size. Of larger ones it checks only the
// header, the schema and the data that it reads anyway, in order to stay fast.
constexpr int64_t kQuickCheckBytesMax = 64 << 20;
constexpr std::string_view kMagic("SQLite format 3\0", 16);

fs::path with_suffix(const fs::path& state_dir, const char* suffix) {
  fs::path path = store_path(state_dir);
  path += suffix;
  return path;
}

Status write_state(const fs::path& state_dir, std::string_view state) {
  return replace_file(local_files(), with_suffix(state_dir, ".state"), state);
}

Error corrupt(const fs::path& path, const std::string& what) {
  return make_error(ErrorCode::kDataLoss, "STORE_CORRUPT",
                    path.string() + " is damaged (" + what +
                        "): restore it and its -wal file from a backup, or move them away and "
                        "remove " +
                        path.filename().string() + ".state to start over");
}

const char* vfs_of(const StoreOptions& options) {
  return options.vfs.empty() ? nullptr : options.vfs.c_str();
}

int newest_schema(const StoreOptions& options) {
  return options.schema_newest > 0 ? options.schema_newest : newest_schema_version();
}

// Creates the store under another name and renames it, so that a crash in between leaves no
// trainyard.db.
Status make_store(const StoreOptions& options) {
  const fs::path path = with_suffix(options.state_dir, ".new");
  for (const char* suffix : {"", "-journal", "-wal", "-shm"})
    if (Status s = local_files().remove_all(path.string() + suffix); !s.ok()) return s;
  {
    Connection db(path, Connection::Mode::kCreate, options.busy_timeout_ms, vfs_of(options));
    if (Status s = migrate(db, path.string(), newest_schema(options)); !s.ok()) return s;
    Query query(db, "INSERT INTO settings (key, value) VALUES ('page_token_key', ?)");
    query.bind_blob(random_bytes(32)).run();
  }
  return local_files().rename_durable(path, store_path(options.state_dir));
}

// Checks the file before SQLite opens it, because SQLite would treat an empty file as a new store.
Status check_file(const fs::path& state_dir, bool was_open) {
  const fs::path path = store_path(state_dir);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return make_error(ErrorCode::kPermissionDenied, "STATE_DIR_NOT_WRITABLE",
                      "cannot open " + path.string() + ": " + std::strerror(errno));
  char head[16] = {};
  if (::pread(fd.get(), head, sizeof head, 0) != sizeof head ||
      std::string_view(head, sizeof head) != kMagic)
    return corrupt(path, "not an SQLite file");
  if (was_open && !fs::exists(with_suffix(state_dir, "-wal")))
    return make_error(ErrorCode::kDataLoss, "STORE_WAL_MISSING",
                      path.string() +
                          "-wal is missing, and the last daemon did not stop cleanly: it contained "
                          "acknowledged changes; restore it, or remove " +
                          path.string() + ".state to continue without them");
  return {};
}

Status quick_check(Connection& db, const fs::path& path) {
  std::error_code ignored;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, ignored));
  if (bytes > kQuickCheckBytesMax) return {};
  const std::string answer = db.query_text("PRAGMA quick_check(1)");
  if (answer != "ok") return corrupt(path, answer);
  return {};
}

Error lost_commits(const fs::path& path, int64_t found, int64_t marked) {
  Error e = make_error(ErrorCode::kDataLoss, "STORE_COMMITS_LOST",
                       path.string() + " ends at commit " + std::to_string(found) + ", but " +
                           std::to_string(marked) +
                           " were acknowledged: its -wal file was cut or damaged, or an older copy "
                           "was put in its place; restore the store with both of its files from a "
                           "backup, or remove " +
                           path.string() + ".commit to continue without the last " +
                           std::to_string(marked - found) + " commits");
  e.metadata = {{"found", std::to_string(found)}, {"acknowledged", std::to_string(marked)}};
  return e;
}

// Compares the number of commits with the mark. Uses a read-only connection, because a writing one
// would move the intact part of a damaged log into the store and delete the log.
Status check_commits(const StoreOptions& options, const fs::path& mark_path) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> marked, CommitMark::read(mark_path));
  if (!marked) return {};
  const fs::path path = store_path(options.state_dir);
  Connection db(path, Connection::Mode::kReadOnly, options.busy_timeout_ms, vfs_of(options));
  const int64_t commit = read_commit(db);
  return commit < *marked ? lost_commits(path, commit, *marked) : Status();
}

std::string read_state(const fs::path& state_dir) {
  const Result<std::string> text = read_file(with_suffix(state_dir, ".state"), 64);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

Error store_missing(const fs::path& path) {
  return make_error(ErrorCode::kFailedPrecondition, "STORE_MISSING",
                    path.string() +
                        " is missing, but a store is expected here: restore it from a "
                        "backup, or remove " +
                        path.string() + ".state and -wal to start over");
}

// Migrates an older store to the newest schema and keeps a copy of it.
Status upgrade(Connection& db, const StoreOptions& options) {
  const std::string name = store_path(options.state_dir).string();
  const int newest = newest_schema(options);
  if (Status s = check_schema(db, name, newest); !s.ok())
    return add_undo_hint(s.error(), options.state_dir, schema_version(db), newest);
  const int version = schema_version(db);
  if (Status s = remove_cut_copies(options.state_dir, version); !s.ok()) return s;
  if (version == newest) return {};
  ASSIGN_OR_RETURN(const SchemaCopy copy, copy_before_migration(db, options));
  if (options.copied) options.copied(copy);
  return migrate(db, name, newest);
}

Status find_or_make_store(const StoreOptions& options) {
  const fs::path path = store_path(options.state_dir);
  if (fs::exists(path)) return {};
  if (!read_state(options.state_dir).empty() || options.must_exist ||
      fs::exists(with_suffix(options.state_dir, "-wal")))
    return store_missing(path);
  return make_store(options);
}

}  // namespace

Error store_error(const fs::path& path, const SqliteError& e) {
  if (e.primary() == SQLITE_CORRUPT || e.primary() == SQLITE_NOTADB) return corrupt(path, e.what());
  Error error = to_error(e);
  error.message = path.string() + ": " + e.what();
  return error;
}

fs::path store_path(const fs::path& state_dir) { return state_dir / "trainyard.db"; }
fs::path commit_mark_path(const fs::path& state_dir) { return with_suffix(state_dir, ".commit"); }
fs::path reserve_path(const fs::path& state_dir) { return with_suffix(state_dir, ".reserve"); }

Status make_state_dir(const fs::path& state_dir) {
  std::error_code error;
  const bool made = fs::create_directories(state_dir, error);
  if (!error && made) fs::permissions(state_dir, fs::perms::owner_all, error);
  if (!error && ::access(state_dir.c_str(), R_OK | W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (!error) return {};
  return make_error(ErrorCode::kPermissionDenied, "STATE_DIR_NOT_WRITABLE",
                    "state directory " + state_dir.string() + ": " + error.message() +
                        "; give the daemon's user write access or choose another directory");
}

bool is_network_file_system(int64_t type) {
  switch (static_cast<uint32_t>(type)) {  // magic numbers of statfs(2)
    case 0x6969:                          // NFS
    case 0xff534d42:                      // CIFS
    case 0xfe534d42:                      // SMB2
    case 0x0bd00bd0:                      // Lustre
    case 0x00c36400:                      // Ceph
    case 0x47504653:                      // GPFS
      return true;
    default:
      return false;
  }
}

Result<std::unique_ptr<Connection>> open_writing(const StoreOptions& options) {
  const fs::path path = store_path(options.state_dir);
  const bool was_open = read_state(options.state_dir) == "open";
  if (Status s = check_file(options.state_dir, was_open); !s.ok()) return s.error();
  if (Status s = check_commits(options, commit_mark_path(options.state_dir)); !s.ok())
    return s.error();
  auto db = std::make_unique<Connection>(path, Connection::Mode::kReadWrite,
                                         options.busy_timeout_ms, vfs_of(options));
  // 8 MiB at most, enough to keep the pages of a group of commands in memory
  db->execute("PRAGMA cache_size = -8192");
  if (db->query_text("PRAGMA journal_mode = WAL") != "wal")
    return make_error(ErrorCode::kFailedPrecondition, "STORE_WAL_UNSUPPORTED",
                      path.string() +
                          ": this file system does not support SQLite's WAL; the "
                          "state directory must be on a local disk");
  if (Status s = quick_check(*db, path); !s.ok()) return s.error();
  return db;
}

Result<OpenStore> open_store(const StoreOptions& options) {
  const fs::path path = store_path(options.state_dir);
  OpenStore store;
  try {
    if (Status s = find_or_make_store(options); !s.ok()) return s.error();
    ASSIGN_OR_RETURN(store.db, open_writing(options));
    if (Status s = upgrade(*store.db, options); !s.ok()) return s.error();
    store.commit = read_commit(*store.db);
    // Writes once, so that the WAL exists before the state file says "open".
    store.db->execute(
        "INSERT INTO settings (key, value) VALUES ('opened', x'01')"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value");
    if (Status s = write_state(options.state_dir, "open\n"); !s.ok()) return s.error();
    ASSIGN_OR_RETURN(store.mark,
                     CommitMark::open(commit_mark_path(options.state_dir), store.commit));
    return store;
  } catch (const SqliteError& e) {
    return store_error(path, e);
  }
}

Result<std::unique_ptr<Connection>> open_unchanged(const fs::path& state_dir) {
  const fs::path path = store_path(state_dir);
  const std::string state = read_state(state_dir);
  std::error_code ec;
  if (!fs::exists(path, ec)) {
    if (!state.empty() || fs::exists(with_suffix(state_dir, "-wal"), ec))
      return store_missing(path);
    return std::unique_ptr<Connection>();
  }
  if (Status s = check_file(state_dir, state == "open"); !s.ok()) return s.error();
  ASSIGN_OR_RETURN(const std::optional<int64_t> marked,
                   CommitMark::read(commit_mark_path(state_dir)));
  try {
    auto db = std::make_unique<Connection>(path, Connection::Mode::kAlone, 0);
    if (Status s = check_schema(*db, path.string()); !s.ok())
      return add_undo_hint(s.error(), state_dir, schema_version(*db), newest_schema_version());
    const int64_t commit = read_commit(*db);
    if (marked && commit < *marked) return lost_commits(path, commit, *marked);
    return db;
  } catch (const SqliteError& e) {
    return store_error(path, e);
  }
}

Status mark_closed(const fs::path& state_dir) { return write_state(state_dir, "closed\n"); }

Result<std::unique_ptr<Store>> Store::open(StoreOptions options, const Clock& clock) {
  if (Status s = make_state_dir(options.state_dir); !s.ok()) return s.error();
  struct statfs file_system {};
  if (::statfs(options.state_dir.c_str(), &file_system) == 0 &&
      is_network_file_system(file_system.f_type) && !options.allow_network_file_system)
    return make_error(ErrorCode::kFailedPrecondition, "STATE_DIR_ON_NETWORK",
                      "state directory " + options.state_dir.string() +
                          " is on a network file system, where SQLite can lose data; choose a "
                          "directory on a local disk");
  ASSIGN_OR_RETURN(StateLock lock, StateLock::take(options.state_dir));
  ASSIGN_OR_RETURN(OpenStore store, open_store(options));
  std::string key;
  try {
    Query query(*store.db, "SELECT value FROM settings WHERE key = 'page_token_key'");
    if (query.step()) key = query.text(0);
    store.unsettled = find_unsettled(*store.db);
  } catch (const SqliteError& e) {
    return store_error(store_path(options.state_dir), e);
  }
  WriterOptions writer_options;
  writer_options.reserve_path = reserve_path(options.state_dir);
  writer_options.reserve_bytes = options.reserve_bytes;
  writer_options.checkpoint_pages = options.checkpoint_pages;
  writer_options.disk_full = options.disk_full;
  auto readers = std::make_unique<Readers>(store_path(options.state_dir), options.readers_max,
                                           options.busy_timeout_ms, options.vfs);
  auto writer = std::make_unique<Writer>(std::move(writer_options), std::move(store), clock);
  return std::unique_ptr<Store>(new Store(std::make_unique<StoreCore>(
      std::move(options), std::move(lock), std::move(writer), std::move(readers), std::move(key))));
}

}  // namespace trainyard::server
