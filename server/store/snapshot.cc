#include "server/store/snapshot.h"

#include <algorithm>
#include <string>

#include "server/store/commit_mark.h"
#include "server/store/store_files.h"
#include "src/base/files.h"

namespace trainyard::server {
namespace {

constexpr int64_t kSnapshotBusyMs = 5000;

}  // namespace

StoreSnapshot::StoreSnapshot(const std::filesystem::path& path)
    : db_(path, Connection::Mode::kReadOnly, kSnapshotBusyMs),
      transaction_(db_, Transaction::Kind::kRead) {
  commit_ = read_commit(db_);  // the first read fixes the instant of the snapshot
  files_ = list_state_files(db_);
  page_bytes_ = std::stoll(db_.query_text("PRAGMA page_size"));
  size_bytes_ = page_bytes_ * std::stoll(db_.query_text("PRAGMA page_count"));
}

Result<std::unique_ptr<StoreSnapshot>> StoreSnapshot::take(const std::filesystem::path& state_dir) {
  try {
    return std::unique_ptr<StoreSnapshot>(new StoreSnapshot(store_path(state_dir)));
  } catch (const SqliteError& e) {
    return to_error(e);
  }
}

void StoreSnapshot::begin_copy(const std::filesystem::path& to) {
  copy_ = std::make_unique<Connection>(store_path(to), Connection::Mode::kCreate, kSnapshotBusyMs);
  // Nobody uses an interrupted copy, so it need not be durable.
  copy_->execute("PRAGMA synchronous = OFF");
  backup_.reset(sqlite3_backup_init(copy_->get(), "main", db_.get(), "main"));
  if (!backup_) copy_->fail(sqlite3_errcode(copy_->get()));
}

Result<bool> StoreSnapshot::copy_some(const std::filesystem::path& to) {
  try {
    if (!copy_) begin_copy(to);
    const int pages = static_cast<int>(std::max<int64_t>(1, kCopyBytes / page_bytes_));
    const int code = sqlite3_backup_step(backup_.get(), pages);
    if (code != SQLITE_OK && code != SQLITE_DONE) copy_->fail(code);
    const int left = sqlite3_backup_remaining(backup_.get());
    copied_bytes_ = size_bytes_ - left * page_bytes_;
    if (code == SQLITE_OK) return false;
    backup_.reset();
    if (Status s = finish_copy(to); !s.ok()) return s.error();
    return true;
  } catch (const SqliteError& e) {
    return to_error(e);
  }
}

Status StoreSnapshot::finish_copy(const std::filesystem::path& to) {
  // The copied header selects WAL mode. This leaves it, so that the copy is a single file, which
  // can be sent.
  copy_->execute("PRAGMA journal_mode = DELETE");
  {
    Transaction change(*copy_, Transaction::Kind::kWrite);
    // A daemon that opens the copy on the same machine would otherwise end these processes of the
    // original daemon.
    copy_->execute("UPDATE attempts SET pid = 0, process_start = 0 WHERE end_time_us = 0");
    copy_->execute("DELETE FROM uploads WHERE complete = 0");
    change.commit();
  }
  copy_.reset();
  std::filesystem::path mark = store_path(to);
  mark += ".commit";
  if (const Result<CommitMark> made = CommitMark::open(mark, commit_); !made.ok()) {
    return made.error();
  }
  return mark_closed(to);
}

}  // namespace trainyard::server
