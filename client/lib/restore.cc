#include "client/lib/restore.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <vector>

#include "src/base/files.h"
#include "src/base/handle.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

using ArchiveIn = Handle<archive, archive_read_free>;

constexpr int64_t kManifestBytesMax = int64_t{512} << 20;
constexpr size_t kPieceBytes = 1 << 20;

/// A folder that the destructor removes with its content, unless keep() was called.
class NewFolder {
 public:
  explicit NewFolder(fs::path path) : path_(std::move(path)) {}
  ~NewFolder() {
    if (!path_.empty()) (void)local_files().remove_all(path_);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  const fs::path& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  fs::path path_;
};

class ArchiveReader {
 public:
  ArchiveReader(const fs::path& folder, const RestoreObserver& observer, std::stop_token stop)
      : folder_(folder), observer_(observer), stop_(std::move(stop)) {}

  Status open(const std::string& file) {
    int in = STDIN_FILENO;
    if (file != "-") {
      file_.reset(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file_) return file_error("cannot open", file, errno);
      in = file_.get();
    }
    archive_.reset(archive_read_new());
    archive_read_support_format_tar(archive_.get());
    if (archive_read_open_fd(archive_.get(), in, kPieceBytes) == ARCHIVE_OK) return {};
    return backup_damaged("it is not a backup: " + text_of_error());
  }

  /// Reads all entries, then compares them with the manifest.
  Result<BackupManifest> read_all() {
    std::string manifest_text;
    for (;;) {
      archive_entry* entry = nullptr;
      const int code = archive_read_next_header(archive_.get(), &entry);
      if (code == ARCHIVE_EOF) break;
      if (code != ARCHIVE_OK) return unreadable();
      if (!manifest_text.empty()) return backup_damaged("data follows its manifest");
      const char* name = archive_entry_pathname(entry);
      const std::string path = name == nullptr ? "" : name;
      if (Status s = check_entry(entry, path); !s.ok()) return s.error();
      if (path == kBackupManifestName) {
        ASSIGN_OR_RETURN(manifest_text, read_text(archive_entry_size(entry)));
      } else if (Status s = write_entry(path, archive_entry_size(entry)); !s.ok()) {
        return s.error();
      }
    }
    if (manifest_text.empty()) {
      return backup_damaged("it has no manifest at its end: it is truncated or not a backup");
    }
    ASSIGN_OR_RETURN(BackupManifest manifest, parse_backup_manifest(manifest_text));
    if (Status s = compare(manifest); !s.ok()) return s.error();
    return manifest;
  }

 private:
  std::string text_of_error() const {
    const char* text = archive_error_string(archive_.get());
    return text == nullptr ? "unknown format" : text;
  }
  Error unreadable() const {
    return backup_damaged("it is truncated, damaged or not a backup: " + text_of_error());
  }

  static Status check_entry(archive_entry* entry, const std::string& path) {
    const auto refuse = [&](const std::string& what) {
      return backup_damaged("its entry " + quoted_value(path) + " " + what);
    };
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr ||
        archive_entry_symlink(entry) != nullptr) {
      return refuse("is not a regular file");
    }
    if (path != kBackupManifestName && !is_backup_path(path)) {
      return refuse("does not belong in a state folder");
    }
    if (archive_entry_size_is_set(entry) == 0 || archive_entry_size(entry) < 0) {
      return refuse("has no size");
    }
    return {};
  }

  /// Reads the next part of the entry's data; empty at its end.
  Result<std::string_view> read_piece() {
    if (stop_.stop_requested()) {
      return make_error(ErrorCode::kCancelled, "INTERRUPTED",
                        "the restore was interrupted; nothing was restored");
    }
    const la_ssize_t n = archive_read_data(archive_.get(), piece_.data(), piece_.size());
    if (n < 0) return unreadable();
    return std::string_view(piece_.data(), static_cast<size_t>(n));
  }

  Result<std::string> read_text(int64_t size_bytes) {
    if (size_bytes < 1 || size_bytes > kManifestBytesMax) {
      return backup_damaged("its manifest has " + std::to_string(size_bytes) + " bytes");
    }
    std::string text;
    for (;;) {
      ASSIGN_OR_RETURN(const std::string_view piece, read_piece());
      if (piece.empty()) break;
      text += piece;
    }
    if (std::ssize(text) != size_bytes) return unreadable();
    return text;
  }

  Status write_entry(const std::string& path, int64_t size_bytes) {
    if (files_.contains(path)) {
      return backup_damaged("its entry " + quoted_value(path) + " appears twice");
    }
    const fs::path to = folder_ / path;
    if (Status s = make_folders(path); !s.ok()) return s;
    const UniqueFd out(
        ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!out) return file_error("cannot create", to, errno);
    Sha256 digest;
    int64_t written = 0;
    for (;;) {
      ASSIGN_OR_RETURN(const std::string_view piece, read_piece());
      if (piece.empty()) break;
      digest.update(piece);
      for (size_t at = 0; at < piece.size();) {
        const ssize_t n = ::write(out.get(), piece.data() + at, piece.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_error("cannot write", to, errno);
        at += static_cast<size_t>(n);
      }
      written += std::ssize(piece);
      done_bytes_ += std::ssize(piece);
      if (observer_) observer_(done_bytes_);
    }
    if (written != size_bytes) return unreadable();
    files_[path] = {path, written, digest.finish()};
    return {};
  }

  /// Creates the parent folders of a file, as private as the daemon's.
  Status make_folders(const std::string& path) const {
    for (size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const fs::path made = folder_ / path.substr(0, slash);
      if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) {
        return file_error("cannot create", made, errno);
      }
    }
    return {};
  }

  Status compare(const BackupManifest& manifest) const {
    for (const BackupFile& expected : manifest.files) {
      const auto found = files_.find(expected.path);
      if (found == files_.end()) {
        return backup_damaged(quoted_value(expected.path) + " is missing from it");
      }
      if (found->second.size_bytes != expected.size_bytes ||
          found->second.sha256 != expected.sha256) {
        return backup_damaged(quoted_value(expected.path) +
                              " does not match the SHA-256 in its manifest");
      }
    }
    if (manifest.files.size() != files_.size()) {
      return backup_damaged("it has files that its manifest does not name");
    }
    if (!files_.contains("trainyard.db")) return backup_damaged("it has no store");
    return {};
  }

  const fs::path folder_;
  const RestoreObserver& observer_;
  const std::stop_token stop_;
  UniqueFd file_;
  ArchiveIn archive_;
  std::vector<char> piece_ = std::vector<char>(kPieceBytes);
  std::map<std::string, BackupFile> files_;
  int64_t done_bytes_ = 0;
};

Error not_empty(const fs::path& state_dir, const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "STATE_DIR_NOT_EMPTY",
                    "--state-dir: " + state_dir.string() + " " + what +
                        ", expected a folder that is empty or does not exist yet");
}

Status check_target(const fs::path& state_dir) {
  std::error_code ec;
  const fs::file_status status = fs::status(state_dir, ec);
  if (!fs::exists(status)) return {};
  if (!fs::is_directory(status)) return not_empty(state_dir, "is not a folder");
  for (fs::directory_iterator it(state_dir, ec), end; !ec && it != end; it.increment(ec)) {
    // present in the root of an ext file system
    if (it->path().filename() == "lost+found") continue;
    return not_empty(state_dir, "is not empty");
  }
  if (ec) return file_error("cannot list", state_dir, ec.value());
  return {};
}

/// Returns whether an existing folder cannot be replaced by renaming another one over it: it is a
/// link, a mount point, or in a folder where this user may not write, such as /var/lib.
bool cannot_be_replaced(const fs::path& folder) {
  std::error_code ec;
  if (!fs::exists(folder, ec)) return false;
  if (fs::is_symlink(folder, ec)) return true;
  struct statx info {};
  if (::statx(AT_FDCWD, folder.c_str(), 0, STATX_BASIC_STATS, &info) == 0 &&
      (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
    return true;
  }
  return ::access(folder.parent_path().c_str(), W_OK | X_OK) != 0;
}

Status sync_file_system(const fs::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::syncfs(fd.get()) != 0) return file_error("cannot sync", folder, errno);
  return {};
}

/// Moves the files into a folder that cannot be replaced. trainyard.db.state comes first and the
/// store last: a daemon that is started in between refuses to run, because it finds
/// trainyard.db.state without the store.
Status move_into(const fs::path& from, const fs::path& to) {
  std::vector<fs::path> names;
  std::error_code ec;
  for (fs::directory_iterator it(from, ec), end; !ec && it != end; it.increment(ec)) {
    names.push_back(it->path().filename());
  }
  if (ec) return file_error("cannot list", from, ec.value());
  const auto rank = [](const fs::path& name) {
    return name == "trainyard.db.state" ? 0 : name == "trainyard.db" ? 2 : 1;
  };
  std::ranges::stable_sort(names, {}, rank);
  for (const fs::path& name : names) {
    if (Status s = local_files().rename_durable(from / name, to / name); !s.ok()) return s;
  }
  return {};
}

}  // namespace

Result<BackupManifest> restore_backup(const std::string& archive, const fs::path& state_dir,
                                      const RestoreObserver& observer, std::stop_token stop) {
  const fs::path target = fs::absolute(state_dir / "").lexically_normal().parent_path();
  if (Status s = check_target(target); !s.ok()) return s.error();
  const bool in_place = cannot_be_replaced(target);
  const fs::path parent = in_place ? target : target.parent_path();
  std::error_code ec;
  fs::create_directories(parent, ec);
  if (ec) return file_error("cannot create", parent, ec.value());
  std::string made = (parent / ("." + target.filename().string() + ".restore-XXXXXX")).string();
  if (::mkdtemp(made.data()) == nullptr)
    return file_error("cannot create a folder in", parent, errno);
  NewFolder folder(made);

  ArchiveReader reader(folder.path(), observer, stop);
  if (Status s = reader.open(archive); !s.ok()) return s.error();
  ASSIGN_OR_RETURN(BackupManifest manifest, reader.read_all());
  if (Status s = sync_file_system(folder.path()); !s.ok()) return s.error();
  if (in_place) {
    if (Status s = move_into(folder.path(), target); !s.ok()) return s.error();
    return manifest;
  }
  if (::rename(folder.path().c_str(), target.c_str()) != 0) {  // also replaces an empty folder
    if (errno == ENOTEMPTY || errno == EEXIST) return not_empty(target, "is no longer empty");
    return file_error("cannot rename to", target, errno);
  }
  folder.keep();
  if (Status s = local_files().sync_directory(parent); !s.ok()) return s.error();
  return manifest;
}

}  // namespace trainyard::client
