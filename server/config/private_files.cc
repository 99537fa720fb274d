#include "server/config/private_files.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

std::string user_text(uid_t uid) {
  const passwd* const user = ::getpwuid(uid);
  return user != nullptr ? user->pw_name : std::to_string(uid);
}

bool is_foreign(const struct stat& st) { return st.st_uid != ::geteuid() && st.st_uid != 0; }

Error not_private(const std::string& what, const fs::path& path, const std::string& why) {
  return make_error(ErrorCode::kFailedPrecondition, "FOLDER_NOT_PRIVATE",
                    what + " " + path.string() + " " + why);
}

std::string foreign_text(const fs::path& path, const struct stat& st, const char* chown) {
  return "belongs to the user " + user_text(st.st_uid) + ", not to the daemon's user " +
         user_text(::geteuid()) + ": run " + chown + " " + user_text(::geteuid()) + " " +
         path.string();
}

/// Checks one of the daemon's own folders, or a file or link in it.
Status check_own(const std::string& what, const fs::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return {};  // nothing is there, or it cannot be used anyway
  if (is_foreign(st)) return not_private(what, path, foreign_text(path, st, "chown -R"));
  if (!S_ISLNK(st.st_mode) && (st.st_mode & kOthersWrite) != 0) {
    return not_private(what, path,
                       "may be written by other users: run chmod go-w " + path.string());
  }
  return {};
}

/// Refuses a folder above `path` in which every user may rename others' files, so that anyone could
/// put another folder in the place of `path`.
Status check_above(const std::string& what, const fs::path& path) {
  std::error_code ec;
  const fs::path whole = fs::weakly_canonical(path, ec);
  for (fs::path folder = whole.parent_path(); !ec; folder = folder.parent_path()) {
    struct stat st {};
    if (::stat(folder.c_str(), &st) == 0 && (st.st_mode & S_IWOTH) != 0 &&
        (st.st_mode & S_ISVTX) == 0) {
      return not_private(what, path,
                         "can be replaced by other users, who may write " + folder.string() +
                             ": run chmod o-w " + folder.string());
    }
    if (folder == folder.parent_path()) break;
  }
  return {};
}

Status check_state_folder(const fs::path& state_dir) {
  if (Status s = check_above("state_dir", state_dir); !s.ok()) return s;
  std::error_code ec;
  const fs::path folder = fs::canonical(state_dir, ec);
  if (ec) return {};  // it does not exist yet
  if (Status s = check_own("state_dir", folder); !s.ok()) return s;
  struct stat st {};
  const bool closed = ::stat(folder.c_str(), &st) == 0 && (st.st_mode & (S_IXGRP | S_IXOTH)) == 0;
  if (closed) return {};  // nobody else can reach what is in it
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->is_socket(ec)) continue;  // the daemon's own socket, which is replaced
    if (Status s = check_own("state_dir:", it->path()); !s.ok()) return s;
  }
  return {};
}

}  // namespace

std::string why_not_private(const fs::path& path, bool group_may_read) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return std::strerror(errno);
  if (is_foreign(st)) return foreign_text(path, st, "chown");
  const mode_t refused = group_may_read ? (S_IRWXO | S_IWGRP) : (S_IRWXO | S_IRWXG);
  if ((st.st_mode & refused) == 0) return "";
  return "other users can read or write it: run chmod " +
         std::string(group_may_read ? "o-rwx,g-w " : "600 ") + path.string();
}

Status check_private_files(const Config& config) {
  if (Status s = check_state_folder(config.state_dir); !s.ok()) return s;
  if (Status s = check_above("socket", config.socket); !s.ok()) return s;
  if (!config.front_socket.empty()) {
    if (Status s = check_above("front_socket", config.front_socket); !s.ok()) return s;
  }
  if (config.tls_key.empty()) return {};
  const std::string why = why_not_private(config.tls_key, /*group_may_read=*/true);
  if (why.empty()) return {};
  return make_error(ErrorCode::kFailedPrecondition, "KEY_NOT_PRIVATE",
                    "tls_key " + config.tls_key.string() + ": " + why);
}

}  // namespace trainyard::server
