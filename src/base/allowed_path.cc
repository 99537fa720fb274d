#include "src/base/allowed_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "src/base/folder_files.h"
#include "src/base/sha256.h"
#include "src/base/tar_folder.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

Error refuse(ErrorCode code, const char* reason, const std::string& field,
             const std::string& description) {
  Error e = field_error(reason, field, description);
  e.code = code;
  return e;
}

Error outside(const std::string& path, const std::string& field) {
  return refuse(ErrorCode::kPermissionDenied, "SERVER_PATH_OUTSIDE", field,
                quoted_value(path) + " is not inside a folder that the server's operator allows");
}

/// Returns the components of `path` below `root`; nullopt if `path` is not below `root`, and empty
/// if it is `root` itself.
std::optional<std::vector<std::string>> parts_below(const fs::path& path, const fs::path& root) {
  auto at = path.begin();
  for (const fs::path& part : root) {
    if (part.empty()) continue;  // `root` ends with a slash
    if (at == path.end() || *at != part) return std::nullopt;
    ++at;
  }
  std::vector<std::string> parts;
  for (; at != path.end(); ++at) {
    if (!at->empty() && *at != ".") parts.push_back(at->string());
  }
  return parts;
}

Error not_opened(int error, const std::string& path, const std::string& field) {
  if (error == EACCES || error == EPERM) {
    return refuse(ErrorCode::kPermissionDenied, "SERVER_PATH_UNREADABLE", field,
                  quoted_value(path) + " is not readable by the server");
  }
  if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG) {
    return refuse(ErrorCode::kNotFound, "SERVER_PATH_NOT_FOUND", field,
                  quoted_value(path) + " does not exist");
  }
  return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                    field + ": " + quoted_value(path) + ": " + std::strerror(error));
}

Error a_link(const std::string& path, const std::string& field) {
  return refuse(
      ErrorCode::kInvalidArgument, "DATASET_INVALID", field,
      quoted_value(path) + " is a link or is reached through one; links are not followed");
}

std::string stamp_line(const std::string& name, const struct stat& st) {
  const auto time = [](const timespec& t) {
    return std::to_string(t.tv_sec) + "." + std::to_string(t.tv_nsec);
  };
  return name + '\0' + std::to_string(st.st_dev) + " " + std::to_string(st.st_ino) + " " +
         std::to_string(st.st_size) + " " + time(st.st_mtim) + " " + time(st.st_ctim) + "\n";
}

}  // namespace

fs::path AllowedPath::path() const { return "/proc/self/fd/" + std::to_string(opened.get()); }

Result<AllowedPath> open_allowed_path(const std::string& path, std::span<const fs::path> roots,
                                      const std::string& field) {
  if (roots.empty()) {
    return refuse(ErrorCode::kFailedPrecondition, "SERVER_PATH_DISABLED", field,
                  "this server does not allow files of its own; its operator can allow a folder "
                  "with the setting ingest_root");
  }
  const fs::path asked(path);
  if (!asked.is_absolute() || path.find('\0') != std::string::npos ||
      std::ranges::find(asked, "..") != asked.end()) {
    return outside(path, field);
  }
  std::optional<std::vector<std::string>> parts;
  UniqueFd at;
  for (const fs::path& root : roots) {
    if (!(parts = parts_below(asked, root))) continue;
    at.reset(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!at) return not_opened(errno, path, field);
    break;
  }
  if (!parts) return outside(path, field);
  struct stat st {};
  for (const std::string& part : *parts) {
    UniqueFd next(::openat(at.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return not_opened(errno, path, field);
    if (::fstat(next.get(), &st) != 0) return not_opened(errno, path, field);
    if (S_ISLNK(st.st_mode)) return a_link(path, field);
    at = std::move(next);
  }
  if (::fstat(at.get(), &st) != 0) return not_opened(errno, path, field);
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
    return refuse(ErrorCode::kInvalidArgument, "DATASET_INVALID", field,
                  quoted_value(path) + " is neither a file nor a folder");
  }
  // Opens the file that the O_PATH descriptor refers to again, for reading.
  AllowedPath found;
  const std::string walked = "/proc/self/fd/" + std::to_string(at.get());
  found.opened.reset(::open(walked.c_str(), O_RDONLY | O_CLOEXEC));
  if (!found.opened) return not_opened(errno, path, field);
  found.folder = S_ISDIR(st.st_mode);
  return found;
}

Result<SourceStamp> stamp_of(const AllowedPath& allowed, const std::string& field) {
  struct stat st {};
  if (::fstat(allowed.opened.get(), &st) != 0) return not_opened(errno, "", field);
  SourceStamp stamp;
  const auto note_times = [&stamp](const struct stat& of) {
    stamp.changed_s = std::max<int64_t>({stamp.changed_s, of.st_mtim.tv_sec, of.st_ctim.tv_sec});
  };
  note_times(st);
  if (!allowed.folder) {
    stamp.digest = sha256_hex(stamp_line("", st));
    return stamp;
  }
  std::vector<std::string> lines;
  std::error_code failed;
  fs::recursive_directory_iterator entry(allowed.path(), failed);
  const size_t root_size = allowed.path().string().size() + 1;
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().string().substr(root_size);
    if (is_ignored_name(entry->path().filename().string())) {
      entry.disable_recursion_pending();
      continue;
    }
    if (::lstat(entry->path().c_str(), &st) != 0) return not_opened(errno, name, field);
    if (S_ISLNK(st.st_mode)) return a_link(name, field);
    if (entry.depth() > kTreeDepthMax || std::ssize(lines) > 2 * kTreeFilesMax) {
      return refuse(ErrorCode::kInvalidArgument, "DATASET_INVALID", field,
                    "too many files, or too deep");
    }
    note_times(st);
    lines.push_back(stamp_line(name, st));
  }
  if (failed) return not_opened(failed.value(), "", field);
  std::ranges::sort(lines);
  Sha256 digest;
  for (const std::string& line : lines) digest.update(line);
  stamp.digest = digest.finish();
  return stamp;
}

Result<std::string> content_digest(const AllowedPath& allowed) {
  if (!allowed.folder) return sha256_file(allowed.path());
  ASSIGN_OR_RETURN(TarFolder tar, TarFolder::open(allowed.path()));
  constexpr int64_t kPiece = 1 << 20;
  Sha256 digest;
  std::string piece;
  for (int64_t at = 0; at < tar.size(); at += kPiece) {
    piece.clear();
    if (Status s = tar.read(at, std::min(kPiece, tar.size() - at), piece); !s.ok()) {
      return std::move(s).error();
    }
    digest.update(piece);
  }
  return digest.finish();
}

}  // namespace trainyard
