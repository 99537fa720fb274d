// server/store/store.h: the durable state of the daemon, one SQLite file in the state directory.
//
// One writer thread owns the one writing connection, runs the commands waiting in a bounded queue
// as one transaction, commits, and only then answers: an acknowledged change survives power loss
// (WAL, synchronous=FULL). A second thread delivers the answers, so that the next group is written
// meanwhile. Readers have read-only connections of their own and never checkpoint: with SQLite
// before 3.51.3 a checkpoint on another connection than the writer's can lose commits.
//
// A change has the form that its callers use. `change(args)` waits for the answer.
// `change(args, done)` returns at once; `done` is called exactly once, on the answering thread, and
// must be short and must not wait for the store; wait_for.h waits for it elsewhere.
// Errors common to all: RESOURCE_EXHAUSTED/STORAGE_FULL, UNAVAILABLE/STORE_BUSY (queue full or
// locked by another process), UNAVAILABLE/STORE_FAILED (a write failed; restart the daemon after
// checking the disk).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "server/store/array_store.h"
#include "server/store/dataset_store.h"
#include "server/store/drain_store.h"
#include "server/store/forecast_store.h"
#include "server/store/job_store.h"
#include "server/store/model_store.h"
#include "server/store/removals.h"
#include "server/store/upload_store.h"
#include "src/base/clock.h"
#include "src/base/disk_space.h"
#include "src/base/result.h"

namespace trainyard::server {

struct SchemaCopy;  // of the store of before an upgrade (server/store/schema_copy.h)

struct StoreOptions {
  std::filesystem::path state_dir;  // created if missing, mode 0700
  // True if the operator said that the store must exist: a missing store is then an error instead
  // of a new, empty one (for a volume that was not mounted).
  bool must_exist = false;
  // SQLite's WAL needs memory shared by all its users, which network file systems do not provide.
  bool allow_network_file_system = false;
  int64_t queued_jobs_max = 100'000;  // per project
  int32_t readers_max = 4;            // read-only connections
  int64_t busy_timeout_ms = 5000;     // another process holds the file
  // Reserved, and freed when the disk is full, so that cancel still works. 0: no reserve.
  int64_t reserve_bytes = 4 << 20;
  // Pages (4 KiB) in the WAL after which the writer checkpoints when idle; at eight times as many
  // it does so under load too.
  int32_t checkpoint_pages = 1000;
  // Called between the copy of an older store and its migration.
  std::function<void(const SchemaCopy&)> copied;
  // For tests: of the folder's file system; SQLite's file layer, empty for the default one; the
  // newest schema of an earlier program, 0 for this one's.
  std::function<std::optional<int64_t>(const std::filesystem::path&)> free_bytes = &free_bytes_of;
  std::string vfs;
  int schema_newest = 0;
};

/// A job's changes in a commit.
struct JobChange {
  std::string uid;
  int64_t newest_seq = 0;
  JobState state = JobState::kQueued;
  std::optional<JobBrief> reschedules;  // if what the scheduler goes by changed
  bool cancel_requested = false;
  bool pause_requested = false;
  bool removed = false;
  bool saved = false;  // a checkpoint
  // Of a running job, from then on (remaining_of); 0: unknown.
  double remaining_low_s = 0, remaining_s = 0, remaining_high_s = 0;
  int64_t time_us = 0;
};
using JobObserver = std::function<void(std::span<const JobChange>)>;

class StoreCore;  // connections, writer and readers (server/store/store_core.h)

class Store {
 public:
  /// Locks the state directory, opens or creates the store, migrates an older one, of which a copy
  /// is kept (schema_copy.h). Errors: RESOURCE_EXHAUSTED/STORAGE_FULL without room for that copy;
  /// FAILED_PRECONDITION/STATE_DIR_LOCKED names the pid that holds it; DATA_LOSS/STORE_CORRUPT,
  /// STORE_LOST_COMMITS, STORE_MARK_DAMAGED and
  /// FAILED_PRECONDITION/STORE_NEWER, STORE_MISSING name the file and the remedy;
  /// PERMISSION_DENIED/STATE_DIR_NOT_WRITABLE; FAILED_PRECONDITION/STATE_DIR_ON_NETWORK. An
  /// existing file is never replaced.
  static Result<std::unique_ptr<Store>> open(StoreOptions options,
                                             const Clock& clock = system_clock());
  /// Refuses new commands, commits and answers the waiting ones, checkpoints, closes, unlocks.
  ~Store();

  JobStore& jobs() { return jobs_; }
  ArrayStore& arrays() { return arrays_; }
  DatasetStore& datasets() { return datasets_; }
  UploadStore& uploads() { return uploads_; }
  ModelStore& models() { return models_; }
  RemovalStore& removals() { return removals_; }
  DrainStore& drains() { return drains_; }
  ForecastStore& forecasts() { return forecasts_; }

  /// Called on the answering thread after each commit that changed jobs, before the answers of that
  /// commit, in commit order. Must be short. Register before the first change.
  void observe(JobObserver observer);

  /// OK while the store accepts writes. Otherwise answer NOT_SERVING.
  Status health() const;

 private:
  explicit Store(std::unique_ptr<StoreCore> core);
  std::unique_ptr<StoreCore> core_;
  JobStore jobs_;
  ArrayStore arrays_;
  DatasetStore datasets_;
  UploadStore uploads_;
  ModelStore models_;
  RemovalStore removals_;
  DrainStore drains_;
  ForecastStore forecasts_;
};

/// A sentence for the log and for ServerInfo.warnings if the loaded SQLite can lose commits when
/// another program checkpoints the open store.
std::optional<std::string> sqlite_warning();

}  // namespace trainyard::server
