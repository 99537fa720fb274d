#include "src/base/disk_space.h"

#include <sys/statvfs.h>

namespace trainyard {

namespace fs = std::filesystem;

std::optional<int64_t> free_bytes_of(const fs::path& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

int64_t bytes_below(const fs::path& path) {
  std::error_code ec;
  if (fs::is_regular_file(fs::symlink_status(path, ec))) {
    return static_cast<int64_t>(fs::file_size(path, ec));
  }
  int64_t bytes = 0;
  for (fs::recursive_directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code skipped;
    if (it->is_regular_file(skipped)) bytes += static_cast<int64_t>(it->file_size(skipped));
  }
  return bytes;
}

}  // namespace trainyard
