#include "server/dispatch/job_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <vector>

#include "src/base/check.h"
#include "src/base/files.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/safetensors.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kModelJsonBytesMax = int64_t{512} << 20;

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
  scan(paths.job(job_uid), [&](const fs::path& path) {
    return path.filename().string().starts_with("reports-") ||
           path.stem() == paths.written_model(job_uid).filename();  // also .tmp and .old
  });
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

Status check_delivered_model(const fs::path& folder) {
  const auto invalid = [](const std::string& what) {
    return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", what);
  };
  ASSIGN_OR_RETURN(const std::string text, read_file(folder / "model.json", kModelJsonBytesMax));
  std::set<std::string> keys;
  const auto note_key = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key) keys.insert(value.get<std::string>());
    return depth == 0;  // nothing below the first level is kept
  };
  if (Json::parse(text, note_key, /*allow_exceptions=*/false).is_discarded()) {
    return invalid("model.json is not JSON");
  }
  for (const char* key : {"format_version", "model", "schema", "preprocessing"}) {
    if (!keys.contains(key)) return invalid(std::string("model.json has no ") + key);
  }
  const auto weights =
      SafetensorsFile::open(folder / "model.safetensors", SafetensorsFile::Halves::kAccepted);
  if (weights.ok() || is_of_file_error(weights.error().reason)) {
    return weights.ok() ? Status() : Status(weights.error());
  }
  return invalid(weights.error().message);
}

}  // namespace trainyard::server
