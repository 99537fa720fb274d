#include "server/check/unused_files.h"

#include <algorithm>

#include "server/store/migrations.h"
#include "server/store/schema_copy.h"

namespace trainyard::server {

namespace fs = std::filesystem;

std::vector<fs::path> list_kept_files(const StatePaths& paths) {
  std::vector<fs::path> found;
  for (const char* kind : {"uploads", "datasets", "models", "jobs"}) {
    const auto begin = std::ssize(found);
    std::error_code ec;
    for (fs::directory_iterator it(paths.root() / kind, ec), end; !ec && it != end;
         it.increment(ec)) {
      found.push_back(it->path());
    }
    std::sort(found.begin() + begin, found.end());
  }
  return found;
}

std::set<fs::path> used_files(const StatePaths& paths, const StateFiles& named) {
  std::set<fs::path> used;
  for (const StateFiles::Upload& u : named.uploads) {
    used.insert(u.complete ? paths.upload(u.sha256)
                           : paths.upload_part(u.project, u.sha256, u.size_bytes));
  }
  for (const StateFiles::Dataset& d : named.datasets) used.insert(paths.dataset(d.digest));
  for (const StateFiles::Model& m : named.models) {
    if (!m.job_uid.empty()) used.insert(paths.model(m.job_uid));
  }
  for (const StateFiles::Job& j : named.jobs) {
    used.insert(paths.job(j.uid));
    if (!j.ended()) used.insert(paths.model(j.uid));  // a worker writes it before its row exists
  }
  return used;
}

bool add_files_of_copy(const StatePaths& paths, std::set<fs::path>& used) {
  const std::optional<SchemaCopy> copy = find_schema_copy(paths.root(), newest_schema_version());
  if (!copy) return true;
  const Result<std::unique_ptr<Connection>> db = open_schema_copy(*copy);
  if (!db.ok()) return false;
  try {
    used.merge(used_files(paths, list_state_files(**db)));
    return true;
  } catch (const SqliteError&) {  // its schema refers to files in another way
    return false;
  }
}

}  // namespace trainyard::server
