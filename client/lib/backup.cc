#include "client/lib/backup.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>

#include "client/lib/backup_manifest.h"
#include "src/base/files.h"
#include "src/base/handle.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

using ArchiveOut = Handle<archive, archive_write_free>;
using EntryOut = Handle<archive_entry, archive_entry_free>;

std::string rfc3339(std::time_t time) {
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

/// Writes the archive under a temporary name; the destructor removes it unless publish() has
/// renamed it.
class BackupWriter {
 public:
  explicit BackupWriter(std::string file) : target_(std::move(file)), now_(std::time(nullptr)) {}
  ~BackupWriter() {
    if (part_.empty()) return;
    archive_.reset();
    ::unlink(part_.c_str());
  }
  BackupWriter(const BackupWriter&) = delete;
  BackupWriter& operator=(const BackupWriter&) = delete;

  Status open() {
    int out = STDOUT_FILENO;
    if (target_ != "-") {
      const fs::path part = target_ + ".part";
      file_.reset(
          ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!file_) return file_error("cannot create", part, errno);
      part_ = part;
      out = file_.get();
    }
    archive_.reset(archive_write_new());
    archive_write_set_format_pax_restricted(archive_.get());
    archive_write_add_filter_none(archive_.get());
    archive_write_set_bytes_per_block(archive_.get(), 1 << 20);
    archive_write_set_bytes_in_last_block(archive_.get(), 1);
    return checked(archive_write_open_fd(archive_.get(), out));
  }

  Status take(const v1::BackupResponse& message) {
    switch (message.kind_case()) {
      case v1::BackupResponse::kHeader:
        return begin_file(message.header());
      case v1::BackupResponse::kData:
        return append(message.data());
      case v1::BackupResponse::kEnd:
        return end_file(message.end());
      case v1::BackupResponse::kSummary:
        return finish(message.summary());
      default:
        return {};
    }
  }

  int64_t done_bytes() const { return done_bytes_; }
  const std::optional<v1::BackupResponse::Summary>& summary() const { return summary_; }

  /// Renames the archive to its final name.
  Status publish() {
    if (part_.empty()) return {};
    if (::fsync(file_.get()) != 0) return file_error("cannot sync", part_, errno);
    file_.reset();
    if (Status s = local_files().rename_durable(part_, fs::absolute(target_)); !s.ok()) return s;
    part_.clear();
    return {};
  }

 private:
  Status checked(int code) const {
    if (code == ARCHIVE_OK) return {};
    const int err = archive_errno(archive_.get());
    return file_error("cannot write",
                      target_ == "-" ? fs::path("standard output") : fs::path(target_),
                      err > 0 ? err : EIO);
  }

  Status add_entry(const std::string& path, int64_t size_bytes) {
    const EntryOut entry(archive_entry_new());
    archive_entry_set_pathname(entry.get(), path.c_str());
    archive_entry_set_size(entry.get(), size_bytes);
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0600);
    archive_entry_set_mtime(entry.get(), now_, 0);
    return checked(archive_write_header(archive_.get(), entry.get()));
  }

  Status begin_file(const v1::BackupResponse::FileHeader& header) {
    if (open_) return malformed("a file that did not end");
    if (!is_backup_path(header.path()) || header.size_bytes() < 0 ||
        !seen_.insert(header.path()).second) {
      return malformed("a file named " + quoted_value(header.path()));
    }
    open_ = true;
    digest_ = Sha256();
    left_bytes_ = header.size_bytes();
    manifest_.files.push_back({header.path(), header.size_bytes(), ""});
    return add_entry(header.path(), header.size_bytes());
  }

  Status append(const std::string& data) {
    left_bytes_ -= std::ssize(data);
    if (!open_ || left_bytes_ < 0) return malformed("more data than it announced");
    digest_.update(data);
    for (size_t at = 0; at < data.size();) {
      const la_ssize_t n = archive_write_data(archive_.get(), data.data() + at, data.size() - at);
      if (n <= 0) return checked(ARCHIVE_FATAL);
      at += static_cast<size_t>(n);
    }
    done_bytes_ += std::ssize(data);
    return {};
  }

  Status end_file(const v1::BackupResponse::FileEnd& end) {
    if (!open_ || left_bytes_ != 0) return malformed("less data than it announced");
    open_ = false;
    BackupFile& file = manifest_.files.back();
    file.sha256 = digest_.finish();
    if (file.sha256 == end.sha256()) return {};
    return backup_damaged(file.path + " was damaged in transit; try again");
  }

  Status finish(const v1::BackupResponse::Summary& summary) {
    if (open_ || summary.file_count() != std::ssize(manifest_.files)) {
      return malformed("an end before all files");
    }
    if (summary.format_version() != kBackupFormatVersion) {
      return make_error(ErrorCode::kFailedPrecondition, "BACKUP_NEWER",
                        "the server's backup has format " +
                            std::to_string(summary.format_version()) +
                            "; use its version of trainyard");
    }
    manifest_.server_version = summary.server_version();
    manifest_.commit = summary.commit();
    manifest_.created = rfc3339(now_);
    const std::string text = to_json(manifest_);
    if (Status s = add_entry(kBackupManifestName, std::ssize(text)); !s.ok()) return s;
    if (archive_write_data(archive_.get(), text.data(), text.size()) != std::ssize(text)) {
      return checked(ARCHIVE_FATAL);
    }
    if (Status s = checked(archive_write_close(archive_.get())); !s.ok()) return s;
    summary_ = summary;
    return {};
  }

  static Error malformed(const std::string& what) {
    return make_error(ErrorCode::kDataLoss, "STREAM_MALFORMED", "the server sent " + what);
  }

  const std::string target_;
  const std::time_t now_;
  fs::path part_;  // the temporary file; empty: nothing to remove
  UniqueFd file_;
  ArchiveOut archive_;
  BackupManifest manifest_;
  std::set<std::string> seen_;
  bool open_ = false;
  int64_t left_bytes_ = 0;
  int64_t done_bytes_ = 0;
  Sha256 digest_;
  std::optional<v1::BackupResponse::Summary> summary_;
};

}  // namespace

Result<v1::BackupResponse::Summary> write_backup(Client& client, const std::string& file,
                                                 const BackupObserver& observer,
                                                 std::stop_token stop) {
  BackupWriter writer(file);
  bool open = false;
  BackupProgress progress;
  const Status status = client.backup(stop, [&](const v1::BackupResponse& message) -> Status {
    // opened with the first message, so that a wrong server or token leaves no file behind
    if (!open) {
      if (Status s = writer.open(); !s.ok()) return s;
      open = true;
    }
    if (Status s = writer.take(message); !s.ok()) return s;
    progress.preparing = message.has_progress();
    if (message.has_progress()) {
      progress.done_bytes = message.progress().copied_bytes();
      progress.total_bytes = message.progress().store_bytes();
    } else {
      if (message.has_header()) progress.total_bytes = message.header().total_bytes();
      progress.done_bytes = writer.done_bytes();
    }
    if (observer) observer(progress);
    return {};
  });
  if (stop.stop_requested()) {
    return make_error(ErrorCode::kCancelled, "INTERRUPTED",
                      "the backup was interrupted; nothing was written");
  }
  if (!status.ok()) return status.error();
  if (!writer.summary()) {
    return make_error(ErrorCode::kDataLoss, "STREAM_MALFORMED",
                      "the server ended the backup before it was complete; try again");
  }
  if (Status s = writer.publish(); !s.ok()) return s.error();
  return *writer.summary();
}

}  // namespace trainyard::client
