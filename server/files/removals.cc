#include "server/files/removals.h"

#include <spdlog/spdlog.h>

#include "server/config/log.h"
#include "src/base/check.h"

namespace trainyard::server {

Status remove_kept(Files& files, const StatePaths& paths, const std::filesystem::path& path) {
  TRAINYARD_CHECK(
      paths.holds(path),
      path.string() + " is to be deleted but is not inside a folder of " + paths.root().string());
  return files.remove_all(path);
}

Status remove_noted(Store& store, Files& files, const StatePaths& paths, const std::string& path) {
  if (Status s = remove_kept(files, paths, paths.root() / path); !s.ok()) return s;
  return store.removals().forget(path);
}

void finish_removals(Store& store, Files& files, const StatePaths& paths) {
  const Result<std::vector<std::string>> left = store.removals().list();
  if (!left.ok()) return;
  for (const std::string& path : *left) {
    if (!paths.holds(paths.root() / path)) {  // the store is damaged
      spdlog::error("event=removal_refused {}", kv("path", path));
      continue;
    }
    const Status removed = remove_noted(store, files, paths, path);
    if (removed.ok()) {
      spdlog::info("event=removal_finished {}", kv("path", path));
    } else {
      spdlog::warn("event=files_not_deleted {} {}", kv("path", path),
                   kv("message", removed.error().message));
    }
  }
}

}  // namespace trainyard::server
