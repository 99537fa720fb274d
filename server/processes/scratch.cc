#include "server/processes/scratch.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

Status check_plain(const fs::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return file_error("cannot stat", path, errno);
  const bool plain = S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && st.st_nlink == 1);
  if (plain) return {};
  return make_error(
      ErrorCode::kInternal, "WORKER_PROTOCOL_ERROR",
      "the worker's result has a link or a special file: " + path.filename().string());
}

}  // namespace

Status make_scratch(Files& files, const fs::path& path) {
  if (Status s = files.remove_all(path); !s.ok()) return s;
  return files.create_directories(path);
}

Status empty_folder(Files& files, const fs::path& folder) {
  std::error_code ec;
  std::vector<fs::path> entries;
  fs::directory_iterator it(folder, ec);
  for (const fs::directory_iterator end; !ec && it != end; it.increment(ec)) {
    entries.push_back(it->path());
  }
  if (ec) return file_error("cannot read", folder, ec.value());
  for (const fs::path& entry : entries) {
    if (Status s = files.remove_all(entry); !s.ok()) return s;
  }
  return {};
}

Status take_result(Files& files, const fs::path& made, const fs::path& place) {
  std::error_code ec;
  const fs::file_status status = fs::symlink_status(made, ec);
  if (status.type() == fs::file_type::not_found) return {};
  if (Status s = check_plain(made); !s.ok()) return s;
  fs::recursive_directory_iterator it(made, ec);
  for (const fs::recursive_directory_iterator end; !ec && it != end; it.increment(ec)) {
    if (Status s = check_plain(it->path()); !s.ok()) return s;
  }
  if (ec) return file_error("cannot read", made, ec.value());
  if (Status s = files.remove_all(place); !s.ok()) return s;
  return files.rename_durable(made, place);
}

}  // namespace trainyard::server
