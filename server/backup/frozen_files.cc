#include "server/backup/frozen_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "src/base/check.h"
#include "src/base/files.h"
#include "src/base/handle.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr int kDepthMax = 8;
using Directory = Handle<DIR, ::closedir>;

Error link_error(const fs::path& path, int err) {
  if (err == EXDEV || err == EPERM || err == EMLINK || err == EOPNOTSUPP) {
    return make_error(
        ErrorCode::kFailedPrecondition, "BACKUP_UNSUPPORTED",
        "the server's state folder does not allow hard links within it, which a "
        "backup needs: it must be one local file system; stop the server and copy the "
        "folder instead");
  }
  return file_error("cannot link", path, err);
}

Status make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return file_error("cannot create", path, errno);
}

/// Links all files of the open folder into `to`. The file descriptor stays valid if the folder is
/// renamed meanwhile. Returns false if an entry of the folder was removed meanwhile.
Result<bool> link_folder(UniqueFd folder, const fs::path& to, int depth) {
  if (Status s = make_folder(to); !s.ok()) return s.error();
  const int fd = folder.get();
  const Directory listing(::fdopendir(::dup(fd)));
  if (!listing) return file_error("cannot list", to, errno);
  bool all = true;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat st {};
    if (::fstatat(fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      all = false;
    } else if (S_ISDIR(st.st_mode) && depth < kDepthMax) {
      UniqueFd inner(::openat(fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
      if (!inner) {
        all = false;
        continue;
      }
      ASSIGN_OR_RETURN(const bool whole, link_folder(std::move(inner), to / name, depth + 1));
      all = all && whole;
    } else if (S_ISREG(st.st_mode)) {
      if (::linkat(fd, name.c_str(), AT_FDCWD, (to / name).c_str(), 0) == 0) continue;
      if (errno == EEXIST) continue;
      if (errno != ENOENT) return link_error(to / name, errno);
      all = false;
    }
  }
  return all;
}

bool is_temporary(const fs::path& path) { return path.extension() == ".tmp"; }

}  // namespace

fs::path FrozenFiles::link_of(const std::string& path) const {
  const fs::path named(path);
  TRAINYARD_CHECK(
      !path.empty() && named.is_relative() && std::ranges::find(named, "..") == named.end(),
      "'" + path + "' is not a path inside the state folder");
  return links_ / named;
}

Result<bool> FrozenFiles::freeze(const std::string& path) {
  const fs::path to = link_of(path);
  std::error_code ec;
  fs::create_directories(to.parent_path(), ec);
  if (ec) return file_error("cannot create", to.parent_path(), ec.value());
  UniqueFd from(::open((state_ / path).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!from) {
    if (errno != ENOENT) return file_error("cannot open", state_ / path, errno);
    return fs::exists(to, ec);
  }
  struct stat st {};
  if (::fstat(from.get(), &st) != 0) return file_error("cannot open", state_ / path, errno);
  if (S_ISDIR(st.st_mode)) return link_folder(std::move(from), to, 0);
  if (::link((state_ / path).c_str(), to.c_str()) == 0 || errno == EEXIST) return true;
  if (errno == ENOENT) return false;
  return link_error(to, errno);
}

Result<std::vector<FrozenFile>> FrozenFiles::list(const std::string& path) const {
  std::vector<FrozenFile> files;
  std::error_code ec;
  const auto add = [&](const fs::path& file) {
    if (is_temporary(file)) return;
    const auto size = static_cast<int64_t>(fs::file_size(file, ec));
    files.push_back({file.lexically_relative(links_).generic_string(), size, ""});
  };
  const fs::path root = link_of(path);
  if (!fs::is_directory(root, ec)) {
    add(root);
  } else {
    for (fs::recursive_directory_iterator it(root, ec), end; !ec && it != end;) {
      if (it->is_regular_file(ec)) add(it->path());
      if (!ec) it.increment(ec);
    }
  }
  if (ec) return file_error("cannot list", root, ec.value());
  std::ranges::sort(files, {}, &FrozenFile::path);
  return files;
}

void FrozenFiles::forget(const std::string& path) { (void)local_files().remove_all(link_of(path)); }

}  // namespace trainyard::server
