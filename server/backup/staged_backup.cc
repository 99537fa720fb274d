#include "server/backup/staged_backup.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include "src/base/check.h"
#include "src/base/disk_space.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr int kInstantsMax = 6;
constexpr std::chrono::milliseconds kInstantPause{50};  // lets pending reports arrive
// Free space required in addition to the store's copy.
constexpr int64_t kRoomBytes = int64_t{16} << 20;

std::string text_of(const StatePaths& paths, const fs::path& path) {
  return path.lexically_relative(paths.root()).generic_string();
}

}  // namespace

StagedBackup::StagedBackup(const StatePaths& paths)
    : paths_(paths), root_(paths.backup()), frozen_(paths.root(), root_) {}

StagedBackup::~StagedBackup() {
  snapshot_.reset();
  remove_leftovers(paths_);
}

void StagedBackup::remove_leftovers(const StatePaths& paths) {
  (void)local_files().remove_all(paths.backup());
}

Result<std::unique_ptr<StagedBackup>> StagedBackup::begin(const StatePaths& paths) {
  remove_leftovers(paths);
  if (::mkdir(paths.backup().c_str(), 0700) != 0) {
    return file_error("cannot create", paths.backup(), errno);
  }
  std::unique_ptr<StagedBackup> backup(new StagedBackup(paths));
  if (Status s = backup->freeze_all(); !s.ok()) return s.error();
  return backup;
}

Status StagedBackup::freeze_all() {
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<StoreSnapshot> before,
                     StoreSnapshot::take(paths_.root()));
    for (const StateFiles::Job& job : before->files().jobs) {
      if (job.ended()) continue;
      if (Status s = freeze_checkpoints(job); !s.ok()) return s;
    }
  }
  for (int instant = 1; true; ++instant) {
    snapshot_.reset();
    ASSIGN_OR_RETURN(snapshot_, StoreSnapshot::take(paths_.root()));
    files_.clear();
    warnings_.clear();
    ASSIGN_OR_RETURN(const bool whole, freeze_named(snapshot_->files(), warnings_));
    if (whole || instant == kInstantsMax) break;
    std::this_thread::sleep_for(kInstantPause);
  }
  commit_ = snapshot_->commit();
  store_bytes_ = snapshot_->size_bytes();
  const std::optional<int64_t> free_bytes = free_bytes_of(root_);
  if (!free_bytes || *free_bytes >= store_bytes_ + kRoomBytes) return {};
  return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL",
                    "a backup needs " + human_bytes(store_bytes_ + kRoomBytes) +
                        " for a copy of the store, and the server's disk has " +
                        human_bytes(*free_bytes) + " free: free space there and try again");
}

Status StagedBackup::freeze_checkpoints(const StateFiles::Job& job) {
  for (const CheckpointFolder& c : list_checkpoints(paths_.checkpoints(job.uid))) {
    const std::string path = text_of(paths_, c.path);
    ASSIGN_OR_RETURN(const bool whole, frozen_.freeze(path));
    (void)whole;
    // A checkpoint that was being pruned is incomplete and must not be mistaken for a usable one.
    const CheckpointFolder link{frozen_.link_of(path), c.step, c.old};
    if (!find_state(link)) frozen_.forget(path);
  }
  return {};
}

Result<bool> StagedBackup::freeze_named(const StateFiles& named,
                                        std::vector<std::string>& missing) {
  bool whole = true;
  const auto note = [&](Result<bool> frozen) -> Status {
    if (!frozen.ok()) return frozen.error();
    whole = whole && *frozen;
    return {};
  };
  for (const StateFiles::Job& job : named.jobs) {
    if (Status s = note(freeze_job(job, missing)); !s.ok()) return s.error();
  }
  for (const StateFiles::Upload& u : named.uploads) {
    if (!u.complete) continue;
    const std::string path = text_of(paths_, paths_.upload(u.sha256));
    if (Status s = note(freeze_one(path, u.sha256, "upload " + u.sha256.substr(0, 12), missing));
        !s.ok()) {
      return s.error();
    }
  }
  std::set<std::string> digests;  // several names may have the same content
  for (const StateFiles::Dataset& d : named.datasets) {
    if (!d.ready || !digests.insert(d.digest).second) continue;
    const std::string path = text_of(paths_, paths_.dataset(d.digest));
    if (Status s = note(freeze_one(path, "", "dataset " + d.name, missing)); !s.ok()) {
      return s.error();
    }
  }
  for (const StateFiles::Model& m : named.models) {
    if (m.job_uid.empty()) continue;  // its weights are an upload
    const std::string path = text_of(paths_, paths_.model(m.job_uid));
    if (Status s = note(freeze_one(path, m.digest, "model " + m.name, missing)); !s.ok()) {
      return s.error();
    }
  }
  const std::string algorithms = text_of(paths_, paths_.algorithms());
  // The store refers to none of these files.
  ASSIGN_OR_RETURN(const bool there, frozen_.freeze(algorithms));
  if (!there) return whole;
  ASSIGN_OR_RETURN(const std::vector<FrozenFile> files, frozen_.list(algorithms));
  files_.insert(files_.end(), files.begin(), files.end());
  return whole;
}

Result<bool> StagedBackup::freeze_one(const std::string& path, const std::string& sha256,
                                      const std::string& what, std::vector<std::string>& missing) {
  ASSIGN_OR_RETURN(const bool there, frozen_.freeze(path));
  if (!there) {
    missing.push_back(what + ": its files are missing on the server");
    return false;
  }
  ASSIGN_OR_RETURN(std::vector<FrozenFile> files, frozen_.list(path));
  for (FrozenFile& file : files) {
    if (file.path == path || file.path.ends_with("/model.safetensors")) file.sha256 = sha256;
    files_.push_back(std::move(file));
  }
  return true;
}

Result<bool> StagedBackup::freeze_job(const StateFiles::Job& job,
                                      std::vector<std::string>& missing) {
  if (Status s = freeze_checkpoints(job); !s.ok()) return s.error();
  const std::string folder = text_of(paths_, paths_.checkpoints(job.uid));
  std::vector<CheckpointFolder> found = list_checkpoints(frozen_.link_of(folder));
  const auto newer = [&](const CheckpointFolder& c) { return c.step > job.checkpoint_step; };
  const auto known = std::ranges::find_if_not(found, newer);  // newest first
  const bool lacks =
      !job.ended() && known == found.end() && (job.checkpoint_step > 0 || !found.empty());
  if (!job.ended() && known != found.end()) {
    found.erase(found.begin(), known);
  } else if (lacks && !found.empty()) {
    // Keep the closest checkpoint, in case this is the last attempt.
    found.erase(found.begin(), found.end() - 1);
  }
  if (lacks && job.checkpoint_step > 0) {
    missing.push_back("job " + job.name + ": the checkpoint of step " +
                      std::to_string(job.checkpoint_step) + " is missing on the server; the job " +
                      (found.empty()
                           ? "will start over"
                           : "will resume from step " + std::to_string(found.front().step) +
                                 ", and metrics before that may be missing"));
  }
  for (const CheckpointFolder& c : found) {
    ASSIGN_OR_RETURN(const std::vector<FrozenFile> files,
                     frozen_.list(folder + "/" + c.path.filename().string()));
    files_.insert(files_.end(), files.begin(), files.end());
  }
  return !lacks;
}

Result<bool> StagedBackup::prepare() {
  if (!snapshot_) return true;
  ASSIGN_OR_RETURN(const bool done, snapshot_->copy_some(root_));
  copied_bytes_ = snapshot_->copied_bytes();
  if (!done) return false;
  snapshot_.reset();  // the writer may checkpoint again
  for (const char* name : {"trainyard.db.state", "trainyard.db.commit", "trainyard.db"}) {
    ASSIGN_OR_RETURN(const std::vector<FrozenFile> files, frozen_.list(name));
    files_.insert(files_.end(), files.begin(), files.end());
  }
  std::set<std::string_view> paths;
  for (const FrozenFile& file : files_) {
    const bool is_new = paths.insert(file.path).second;
    TRAINYARD_CHECK(is_new, "the backup contains " + file.path + " twice");
  }
  return true;
}

int64_t StagedBackup::total_bytes() const {
  int64_t bytes = 0;
  for (const FrozenFile& file : files_) bytes += file.size_bytes;
  return bytes;
}

}  // namespace trainyard::server
