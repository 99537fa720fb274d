#include "server/dispatch/job_files.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "src/base/check.h"
#include "src/checkpoint/checkpoint.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

/// Returns the files in the job's folder that may be deleted. Folders that become empty are not
/// included.
std::vector<fs::path> leftovers_of(const StatePaths& paths, const std::string& job_uid) {
  std::vector<fs::path> found;
  const auto scan = [&](const fs::path& folder, const auto& is_leftover) {
    std::error_code ec;
    for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
      if (is_leftover(it->path())) found.push_back(it->path());
    }
  };
  scan(paths.job(job_uid),
       [](const fs::path& path) { return path.filename().string().starts_with("reports-"); });
  scan(paths.checkpoints(job_uid), [](const fs::path& path) { return path.extension() == ".tmp"; });
  for (const CheckpointFolder& checkpoint : list_checkpoints(paths.checkpoints(job_uid))) {
    if (is_half_removed(checkpoint)) found.push_back(checkpoint.path);
  }
  return found;
}

void remove_if_empty(const fs::path& folder) {
  std::error_code ec;
  if (fs::is_empty(folder, ec) && !ec) fs::remove(folder, ec);
}

}  // namespace

bool has_leftovers(const StatePaths& paths, const std::string& job_uid) {
  std::error_code none;
  std::error_code not_there;
  return !leftovers_of(paths, job_uid).empty() || fs::is_empty(paths.job(job_uid), none) ||
         fs::is_empty(paths.checkpoints(job_uid), not_there);
}

void tidy_ended_job(const StatePaths& paths, const std::string& job_uid, bool succeeded) {
  TRAINYARD_CHECK(paths.holds(paths.job(job_uid)) && paths.holds(paths.model(job_uid)),
                  "the uid '" + job_uid + "' does not name a job's own files");
  std::error_code ec;
  for (const fs::path& path : leftovers_of(paths, job_uid)) fs::remove_all(path, ec);
  remove_if_empty(paths.checkpoints(job_uid));
  remove_if_empty(paths.job(job_uid));
  std::vector<fs::path> half_written(2, paths.model(job_uid));
  half_written[0] += ".tmp";
  half_written[1] += ".old";
  if (!succeeded) half_written.push_back(paths.model(job_uid));
  for (const fs::path& path : half_written) {
    if (fs::exists(path, ec)) fs::remove_all(path, ec);
  }
}

}  // namespace trainyard::server
