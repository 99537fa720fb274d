// server/store/store.h: the daemon's durable state, which is one SQLite file in the state
// directory.
//
// One writer thread owns the only writing connection. It runs the commands that wait in a bounded
// queue as one transaction, commits, and only then lets them be answered, so an acknowledged change
// survives power loss (WAL, synchronous=FULL). A second thread, the answering thread, delivers the
// results while the writer commits the next group. Readers have their own read-only connections and
// never checkpoint, because before SQLite 3.51.3 a checkpoint on another connection than the
// writer's can lose commits.
//
// A change has one or both of two forms. `change(args)` waits for the result. `change(args, done)`
// returns immediately; the answering thread later calls `done` exactly once. `done` must be short
// and must not wait for the store. On other threads, wait_for.h can wait for such a change. Errors
// common to all changes: RESOURCE_EXHAUSTED/STORAGE_FULL, UNAVAILABLE/STORE_BUSY (queue full or
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
#include "server/store/audit_store.h"
#include "server/store/dataset_store.h"
#include "server/store/drain_store.h"
#include "server/store/forecast_store.h"
#include "server/store/job_store.h"
#include "server/store/model_store.h"
#include "server/store/owner_store.h"
#include "server/store/people_store.h"
#include "server/store/quota_store.h"
#include "server/store/removals.h"
#include "server/store/upload_store.h"
#include "src/base/clock.h"
#include "src/base/disk_space.h"
#include "src/base/result.h"

namespace trainyard::server {

struct SchemaCopy;  // a copy of the store from before an upgrade (server/store/schema_copy.h)

struct StoreOptions {
  std::filesystem::path state_dir;  // created if missing, mode 0700
  // True if the operator said that the store must exist: a missing store is then an error instead
  // of a new, empty one (for a volume that was not mounted).
  bool must_exist = false;
  // SQLite's WAL needs memory shared by all its users, which network file systems do not provide.
  bool allow_network_file_system = false;
  int64_t queued_jobs_max = 100'000;  // per project
  DevicePrices prices = {};           // for the books of device use
  int32_t readers_max = 4;            // read-only connections
  int64_t busy_timeout_ms = 5000;     // how long to wait while another process has locked the file
  // Size of a reserve file, which is deleted when the disk is full so that essential changes such
  // as cancel still work. 0: no reserve.
  int64_t reserve_bytes = 4 << 20;
  // The number of pages (4 KiB) in the WAL from which on an idle writer checkpoints. At eight times
  // as many it also checkpoints under load.
  int32_t checkpoint_pages = 1000;
  // Called after an older store was copied and before it is migrated.
  std::function<void(const SchemaCopy&)> copied;
  // Called on the writer's thread when the disk becomes full, and when it has room again.
  std::function<void(bool full)> disk_full;
  // For tests only: `free_bytes` returns the free space of a folder's file system, `vfs` names
  // SQLite's file layer (empty: the default), and `schema_newest` is the newest schema of a
  // simulated earlier program (0: this program's).
  std::function<std::optional<int64_t>(const std::filesystem::path&)> free_bytes = &free_bytes_of;
  std::string vfs;
  int schema_newest = 0;
};

/// The changes that a commit made to one job, for observers.
struct JobChange {
  std::string uid;
  int64_t newest_seq = 0;
  JobState state = JobState::kQueued;
  std::optional<JobBrief> reschedules;  // set if data changed from which the scheduler decides
  bool cancel_requested = false;
  bool pause_requested = false;
  bool removed = false;
  bool saved = false;  // a new checkpoint was reported
  // Estimated remaining seconds of a running job from time_us on (remaining_of); 0: unknown.
  double remaining_low_s = 0, remaining_s = 0, remaining_high_s = 0;
  int64_t time_us = 0;
};
using JobObserver = std::function<void(std::span<const JobChange>)>;

class StoreCore;  // owns the lock, the writer and the readers (server/store/store_core.h)

class Store {
 public:
  /// Locks the state directory and opens or creates the store. Migrates an older store after
  /// keeping a copy of it (schema_copy.h). Errors: RESOURCE_EXHAUSTED/STORAGE_FULL without room for
  /// that copy; FAILED_PRECONDITION/STATE_DIR_LOCKED, which names the pid of the lock's owner;
  /// DATA_LOSS/STORE_CORRUPT, STORE_COMMITS_LOST, STORE_MARK_DAMAGED and
  /// FAILED_PRECONDITION/STORE_NEWER, STORE_MISSING, which name the file and the remedy;
  /// PERMISSION_DENIED/STATE_DIR_NOT_WRITABLE; FAILED_PRECONDITION/STATE_DIR_ON_NETWORK. open()
  /// never replaces an existing file.
  static Result<std::unique_ptr<Store>> open(StoreOptions options,
                                             const Clock& clock = system_clock());
  /// Refuses new commands, commits and answers the waiting ones, checkpoints, closes the store and
  /// releases the lock.
  ~Store();

  JobStore& jobs() { return jobs_; }
  ArrayStore& arrays() { return arrays_; }
  DatasetStore& datasets() { return datasets_; }
  UploadStore& uploads() { return uploads_; }
  ModelStore& models() { return models_; }
  RemovalStore& removals() { return removals_; }
  DrainStore& drains() { return drains_; }
  ForecastStore& forecasts() { return forecasts_; }
  AuditStore& audit() { return audit_; }
  PeopleStore& people() { return people_; }
  OwnerStore& owners() { return owners_; }
  QuotaStore& quotas() { return quotas_; }

  /// Called on the answering thread after each commit that changed jobs, before the answers of that
  /// commit, in commit order. Observers must be short. Register them before the first change.
  void observe(JobObserver observer);

  /// Returns OK while the store accepts writes. Otherwise the server must report NOT_SERVING.
  Status health() const;
  /// Returns whether the disk is full: then only changes that end something are stored.
  bool is_full() const;

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
  AuditStore audit_;
  PeopleStore people_;
  OwnerStore owners_;
  QuotaStore quotas_;
};

/// Returns a sentence for the log and for ServerInfo.warnings if the loaded SQLite can lose commits
/// when another program checkpoints the open store.
std::optional<std::string> sqlite_warning();

}  // namespace trainyard::server
