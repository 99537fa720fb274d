// server/daemon/daemon.h: the daemon as one object: its parts, and the order in which they start
// and stop. main.cc adds flags and signals; tests create one in-process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/config/config.h"
#include "server/daemon/cluster_placements.h"
#include "server/files/disk_watch.h"
#include "server/forecast/cluster_rates.h"
#include "server/inventory/inventory.h"
#include "server/rpc/listener.h"
#include "server/rpc/worker_door.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::server {

/// What a test may replace.
struct DaemonParts {
  const Clock* clock = &system_clock();
  Files* files = &local_files();
  std::unique_ptr<Inventory> inventory;   // null: this machine's
  FreeBytes free_bytes = &free_bytes_of;  // of the state folder's disk
  bool adopt_orphans =
      false;  // processes that workers leave behind become our children and are killed (main.cc)
  int64_t watch_heartbeat_ms = 15'000;
  int64_t backup_stall_ms = 300'000;        // a client that takes nothing of a backup
  int64_t housekeeping_pause_ms = 300'000;  // between two looks at keep_jobs and keep_events
  ConnectionRules connections = {};         // of the public sockets
  int64_t worker_heartbeat_ms = 5'000;
  int64_t worker_kill_grace_ms = 5'000;  // from TERM to KILL for a silent, stalled or late worker
  std::function<std::unique_ptr<Placement>(const ClusterConfig&)> make_placement =
      &server::make_placement;
  ClusterRatesOptions cluster_rates = {};
  int64_t worker_stall_ms = 0;  // above 0: instead of stall_timeout_seconds
};

class Daemon {
 public:
  /// Opens the store, takes over what an earlier daemon left running, puts the other jobs that it
  /// ran back into the queue, serves, starts jobs. `config` is complete (complete_config). Each
  /// error is one sentence.
  static Result<std::unique_ptr<Daemon>> start(Config config, DaemonParts parts = {});
  /// drain(), if that was not called.
  ~Daemon();

  /// The graceful stop: no more serving and no new jobs; streams end with a resume point; workers
  /// checkpoint and their jobs return to the queue. Takes at most drain_seconds.
  void drain();
  /// Stops as drain() does, but leaves training workers running, if unattended_seconds lets them,
  /// for the daemon that comes next.
  void leave();
  /// For a second signal: kills every worker and waits for their end. Their jobs resume from their
  /// last checkpoint.
  void kill_workers();
  /// TCP port that was bound; 0 without one.
  int port() const;
  /// What workers from elsewhere are given; null without Config::workers_listen.
  const WorkerDoor* worker_door() const;

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// `trainyardd --check`: looks at what start() would use and at everything in the state folder,
/// changes nothing, serves nothing. `line` gets the result as it is found, `progress` what is read
/// next. False if something is damaged; an error is what keeps the check, or a start, from looking.
Result<bool> check_installation(const Config& config,
                                const std::function<void(const std::string&)>& line,
                                const std::function<void(const std::string&)>& progress);

/// `trainyardd --undo-upgrade`: undo_upgrade() of the configured state folder, and what it says.
Result<std::string> undo_upgrade_of(const Config& config);

}  // namespace trainyard::server
