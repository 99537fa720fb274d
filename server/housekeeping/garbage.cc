#include "server/housekeeping/garbage.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "server/check/unused_files.h"
#include "server/config/log.h"
#include "server/files/removals.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/store/proto_time.h"
#include "server/store/snapshot.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

/// Returns the latest modification time of `path` and of all files and folders below it.
int64_t changed_us(const fs::path& path) {
  int64_t newest = 0;
  const auto visit = [&](const fs::path& p) {
    struct stat st {};
    if (::lstat(p.c_str(), &st) != 0) return;
    newest = std::max(newest, int64_t{st.st_mtim.tv_sec} * 1'000'000 + st.st_mtim.tv_nsec / 1000);
  };
  visit(path);
  std::error_code ec;
  for (fs::recursive_directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec)) {
    visit(it->path());
  }
  return newest;
}

/// Computes the bytes that deleting a list of paths frees. A file with several hard links is freed
/// by the deletion of the last one.
class Freed {
 public:
  struct Bytes {
    int64_t freed = 0;
    int64_t shared = 0;
  };
  void add(size_t index, const fs::path& path) {
    if (bytes_.size() <= index) bytes_.resize(index + 1);
    std::error_code ec;
    add_file(index, path);
    for (fs::recursive_directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec)) {
      add_file(index, it->path());
    }
  }
  const Bytes& of(size_t index) const { return bytes_[index]; }

 private:
  struct File {
    uint64_t names = 0;  // hard links that are deleted
    std::vector<size_t> owners;
  };
  void add_file(size_t index, const fs::path& path) {
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return;
    const int64_t size = st.st_size;
    if (st.st_nlink <= 1) {
      bytes_[index].freed += size;
      return;
    }
    File& file = files_[{st.st_dev, st.st_ino}];
    file.owners.push_back(index);
    bytes_[index].shared += size;
    if (++file.names < st.st_nlink) return;
    for (const size_t owner : file.owners) bytes_[owner].shared -= size;
    bytes_[index].freed += size;
  }
  std::vector<Bytes> bytes_;
  std::map<std::pair<dev_t, ino_t>, File> files_;
};

Status check_range(const char* field, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return {};
  return field_error(
      "FIELD_OUT_OF_RANGE", field,
      std::to_string(value) + " is out of range, expected 0.." + std::to_string(max));
}

/// Returns the request's `as_of`, or now.
Result<int64_t> as_of_time(const v1::CollectGarbageRequest& request, int64_t now_us) {
  if (!request.has_as_of()) return now_us;
  ASSIGN_OR_RETURN(const int64_t as_of_us, from_timestamp("as_of", request.as_of()));
  if (as_of_us > now_us) {
    return field_error("FIELD_OUT_OF_RANGE", "as_of",
                       "is " + std::to_string((as_of_us - now_us + 999'999) / 1'000'000) +
                           " s in the future, expected the as_of of an earlier answer");
  }
  return as_of_us;
}

Status check_request(const v1::CollectGarbageRequest& request) {
  if (Status s = check_range("older_than_seconds", request.older_than_seconds(),
                             Garbage::kOlderThanSecondsMax);
      !s.ok()) {
    return s;
  }
  if (Status s = check_range("keep_events_seconds", request.keep_events_seconds(), kKeptSecondsMax);
      !s.ok()) {
    return s;
  }
  if (!request.has_keep_jobs()) return {};
  const v1::KeptJobs& kept = request.keep_jobs();
  if (!kept.has_newest() && !kept.has_younger_than_seconds()) {
    return field_error("FIELD_REQUIRED", "keep_jobs",
                       "is empty, expected newest, younger_than_seconds or both");
  }
  if (Status s = check_range("keep_jobs.newest", kept.newest(), kKeptNewestMax); !s.ok()) {
    return s;
  }
  return check_range("keep_jobs.younger_than_seconds", kept.younger_than_seconds(),
                     kKeptSecondsMax);
}

/// Returns the request's rule, or else that of the server's settings.
std::optional<KeptJobs> kept_jobs(const v1::CollectGarbageRequest& request, const Config& config) {
  if (!request.has_keep_jobs()) return kept_jobs_setting(config);
  KeptJobs kept;
  if (request.keep_jobs().has_newest()) kept.newest = request.keep_jobs().newest();
  if (request.keep_jobs().has_younger_than_seconds()) {
    kept.younger_than_seconds = request.keep_jobs().younger_than_seconds();
  }
  return kept;
}

std::optional<int64_t> kept_events(const v1::CollectGarbageRequest& request, const Config& config) {
  if (!request.has_keep_events_seconds()) return config.keep_events_seconds;
  return request.keep_events_seconds();
}

}  // namespace

std::function<bool()> Garbage::stopped() const {
  return [this] { return parts_.draining.load(); };
}

Garbage::Candidate Garbage::candidate(Item::Kind kind, const EndedJob& job, std::string reason) {
  Candidate c;
  c.item.set_kind(kind);
  c.item.set_name(full_name(job.project, Collection::kJobs, job.id));
  c.item.set_reason(std::move(reason));
  c.job = job;
  return c;
}

Status Garbage::find_jobs(const v1::CollectGarbageRequest& request, int64_t as_of_us,
                          Found& found) {
  if (const std::optional<KeptJobs> kept = kept_jobs(request, parts_.config)) {
    ASSIGN_OR_RETURN(
        const std::vector<EndedJob> jobs,
        retention_.list_expired(*kept, as_of_us, nullptr, static_cast<int64_t>(kItemsMax) + 1));
    for (const EndedJob& job : jobs) {
      found.candidates.push_back(candidate(Item::JOB, job, retention_.reason_to_delete(job)));
      found.candidates.back().path = parts_.paths.job(job.uid);
    }
  }
  if (const std::optional<int64_t> kept = kept_events(request, parts_.config)) {
    return find_events(request, *kept, as_of_us, found);
  }
  return {};
}

Status Garbage::find_events(const v1::CollectGarbageRequest& request, int64_t kept_seconds,
                            int64_t as_of_us, Found& found) {
  std::set<std::string> going;
  for (const Candidate& c : found.candidates) going.insert(c.job.uid);
  EndedJob after;
  for (bool first = true; found.candidates.size() <= kItemsMax; first = false) {
    if (parts_.draining) return draining_error();
    ASSIGN_OR_RETURN(const std::vector<EndedJob> jobs,
                     retention_.list_to_thin(kept_seconds, as_of_us, first ? nullptr : &after,
                                             Retention::kPieceJobs));
    if (jobs.empty()) break;
    after = jobs.back();
    std::vector<EndedJob> without;
    for (const EndedJob& job : jobs) {
      if (going.contains(job.uid)) continue;
      const Result<bool> thins = retention_.has_to_thin(job);
      if (!thins.ok()) {
        if (retention_.concerns_all(thins.error())) return thins.error();
        if (thins.error().reason == "JOB_NOT_FOUND") continue;
        if (found.warnings.size() == kItemsMax) continue;
        found.warnings.push_back(full_name(job.project, Collection::kJobs, job.id) + ": " +
                                 parts_.paths.hide(thins.error().message));
      } else if (*thins) {
        found.candidates.push_back(candidate(Item::EVENTS, job, retention_.reason_to_thin(job)));
      } else {
        without.push_back(job);
      }
    }
    if (!request.dry_run()) (void)retention_.thin(without, stopped());
  }
  return {};
}

Result<Garbage::Found> Garbage::find(const v1::CollectGarbageRequest& request, int64_t as_of_us) {
  const int64_t older_us =
      1'000'000 *
      (request.has_older_than_seconds() ? request.older_than_seconds() : kOlderThanSecondsDefault);
  const std::vector<fs::path> kept = list_kept_files(parts_.paths);
  StateFiles named;
  {
    ASSIGN_OR_RETURN(const auto snapshot, StoreSnapshot::take(parts_.paths.root()));
    named = snapshot->files();
  }
  Found by_rule;
  if (Status s = find_jobs(request, as_of_us, by_rule); !s.ok()) return std::move(s).error();
  std::set<std::string> going;
  for (const Candidate& c : by_rule.candidates) {
    if (c.item.kind() == Item::JOB) going.insert(c.job.uid);
  }
  Found all{{}, std::move(by_rule.warnings)};
  std::vector<Candidate>& found = all.candidates;
  const auto add = [&](Item::Kind kind, std::string name, std::string reason, fs::path path) {
    Candidate& c = found.emplace_back();
    c.item.set_kind(kind);
    c.item.set_name(std::move(name));
    c.item.set_reason(std::move(reason));
    c.path = std::move(path);
  };
  const auto in_folder = [&](const fs::path& path) {
    return path.lexically_relative(parts_.paths.root()).generic_string();
  };

  std::set<std::string> with_model;
  for (const StateFiles::Model& m : named.models) with_model.insert(m.job_uid);
  for (const StateFiles::Job& j : named.jobs) {
    if (!j.ended() || j.end_time_us > as_of_us - older_us || going.contains(j.uid)) continue;
    const bool succeeded = j.state == JobState::kSucceeded;
    if (succeeded ? !with_model.contains(j.uid) : !request.unsuccessful_jobs()) continue;
    const fs::path path = parts_.paths.checkpoints(j.uid);
    std::error_code ec;
    if (!fs::exists(path, ec) || fs::is_empty(path, ec)) continue;
    add(Item::CHECKPOINTS, full_name(j.project, Collection::kJobs, j.id),
        std::string(name_of(j.state)) + " " + age_text(as_of_us - j.end_time_us) +
            (succeeded ? ", its model is kept" : ", a retry starts over"),
        path);
    found.back().job.uid = j.uid;
  }

  ASSIGN_OR_RETURN(const std::vector<Upload> uploads, uploads_.list_unused(as_of_us));
  for (const Upload& u : uploads) {
    const fs::path path = u.complete ? parts_.paths.upload(u.sha256)
                                     : parts_.paths.upload_part(u.project, u.sha256, u.size_bytes);
    add(Item::UPLOAD, in_folder(path),
        u.complete ? "no dataset and no model uses it"
                   : "incomplete, last used " + age_text(as_of_us - u.active_time_us),
        path);
  }

  std::set<fs::path> used = used_files(parts_.paths, named);
  // The upload may be completing at this moment.
  for (const StateFiles::Upload& u : named.uploads) {
    used.insert(parts_.paths.upload(u.sha256));
    used.insert(parts_.paths.upload_part(u.project, u.sha256, u.size_bytes));
  }
  const bool all_known = add_files_of_copy(parts_.paths, used);
  for (const fs::path& path : kept) {
    if (!all_known || used.contains(path) || changed_us(path) > as_of_us - kFilesGraceUs) continue;
    add(Item::FILES, in_folder(path), "nothing refers to it", path);
  }
  std::ranges::move(by_rule.candidates, std::back_inserter(found));
  return all;
}

Status Garbage::remove(const Candidate& c) {
  if (c.item.kind() == Item::UPLOAD) {
    std::error_code ec;
    if (!fs::exists(c.path, ec)) return {};
    return make_error(ErrorCode::kAborted, "UPLOAD_BUSY", "it is being used again");
  }
  // Update the row first, so that it never names a checkpoint that was deleted.
  if (!c.job.uid.empty()) {
    const Result<Job> job = parts_.store.jobs().drop_checkpoints(c.job.uid);
    if (!job.ok()) return job.error();
  }
  return remove_kept(parts_.files, parts_.paths, c.path);
}

std::vector<Status> Garbage::remove_all(const std::vector<Candidate>& found) {
  std::vector<Status> removed;
  while (removed.size() < found.size()) {
    const size_t begin = removed.size();
    const Item::Kind kind = found[begin].item.kind();
    if (kind != Item::JOB && kind != Item::EVENTS) {
      removed.push_back(remove(found[begin]));
      continue;
    }
    std::vector<EndedJob> jobs;
    for (size_t i = begin; i < found.size() && found[i].item.kind() == kind &&
                           std::ssize(jobs) < Retention::kPieceJobs;
         ++i) {
      jobs.push_back(found[i].job);
    }
    std::vector<Status> piece =
        kind == Item::JOB ? retention_.remove(jobs, stopped()) : retention_.thin(jobs, stopped());
    std::ranges::move(piece, std::back_inserter(removed));
  }
  return removed;
}

Result<v1::CollectGarbageResponse> Garbage::collect(const v1::CollectGarbageRequest& request) {
  if (parts_.draining) return draining_error();
  if (Status s = check_request(request); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const int64_t as_of_us, as_of_time(request, parts_.clock.wall_us()));
  if (collecting_.exchange(true)) {
    return make_error(ErrorCode::kAborted, "GC_BUSY",
                      "another collection is under way; call again when it has ended");
  }
  struct Release {
    std::atomic<bool>& flag;
    ~Release() { flag = false; }
  } const release{collecting_};
  // A backup has hard links, so deleting files would free nothing before it has ended.
  if (parts_.backing_up) {
    return make_error(ErrorCode::kAborted, "GC_BUSY",
                      "a backup is under way; call again when it has ended");
  }
  // Wait until the ends of all jobs up to `as_of_us` are committed, so that a second call with this
  // `as_of` finds no further jobs.
  if (Status s = parts_.store.jobs().wait_for_changes(); !s.ok()) return std::move(s).error();
  Result<Found> all = find(request, as_of_us);
  if (!all.ok()) {
    Error e = all.error();
    e.message = parts_.paths.hide(std::move(e.message));
    return e;
  }
  std::vector<Candidate>& found = all->candidates;
  v1::CollectGarbageResponse response;
  *response.mutable_as_of() = to_timestamp(as_of_us);
  response.mutable_warnings()->Assign(all->warnings.begin(), all->warnings.end());
  response.set_more(found.size() > kItemsMax);
  if (response.more()) found.erase(found.begin() + kItemsMax, found.end());
  Freed freed;
  for (size_t i = 0; i < found.size(); ++i) freed.add(i, found[i].path);
  std::vector<Status> removed(found.size());
  if (!request.dry_run()) {
    uploads_.remove_all_unused(as_of_us);
    removed = remove_all(found);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    Candidate& c = found[i];
    if (!request.dry_run()) {
      if (const Status& s = removed[i]; !s.ok()) {
        spdlog::warn("event=garbage_not_removed {} {}", kv("name", c.item.name()),
                     kv("message", s.error().message));
        response.add_warnings(c.item.name() + ": " + parts_.paths.hide(s.error().message));
        continue;
      }
      spdlog::info("event=garbage_removed {} {} bytes={}", kv("name", c.item.name()),
                   kv("reason", c.item.reason()), freed.of(i).freed);
    }
    c.item.set_freed_bytes(freed.of(i).freed);
    c.item.set_shared_bytes(freed.of(i).shared);
    response.set_freed_bytes(response.freed_bytes() + freed.of(i).freed);
    *response.add_items() = std::move(c.item);
  }
  return response;
}

}  // namespace trainyard::server
