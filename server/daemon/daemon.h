// server/daemon/daemon.h: the daemon as one object, which starts and stops its parts in order.
// main.cc adds flags and signals; tests create daemons in their own process.
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
#include "server/rpc/worker_endpoint.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The parts that a test may replace.
struct DaemonParts {
  const Clock* clock = &system_clock();
  Files* files = &local_files();
  std::unique_ptr<Inventory> inventory;   // null: this machine's devices
  FreeBytes free_bytes = &free_bytes_of;  // of the state folder's disk
  int64_t disk_watch_pause_ms = 2'000;
  // Processes that workers leave behind become this process's children and are killed (main.cc).
  bool adopt_orphans = false;
  int64_t watch_heartbeat_ms = 15'000;
  int64_t backup_stall_ms = 300'000;        // for a client that reads nothing of a backup
  int64_t housekeeping_pause_ms = 300'000;  // between checks of keep_jobs and keep_events
  int64_t ingest_unattended_ms = 60'000;    // without a question of a client
  ConnectionRules connections = {};         // of the public sockets
  int64_t worker_heartbeat_ms = 5'000;
  // From SIGTERM to SIGKILL for a silent, stalled or late worker.
  int64_t worker_kill_grace_ms = 5'000;
  std::function<std::unique_ptr<Placement>(const ClusterConfig&)> make_placement =
      &server::make_placement;
  ClusterRatesOptions cluster_rates = {};
  int64_t worker_stall_ms = 0;  // if above 0, replaces stall_timeout_seconds
};

class Daemon {
 public:
  /// Opens the store, takes over the workers that an earlier daemon left running, requeues that
  /// daemon's other running jobs, serves, and starts jobs. `config` must be complete
  /// (complete_config). Each error is one sentence.
  static Result<std::unique_ptr<Daemon>> start(Config config, DaemonParts parts = {});
  /// Calls drain() unless it was called before.
  ~Daemon();

  /// Stops gracefully: refuses calls and new jobs, ends streams with a resume point, and lets
  /// workers write checkpoints and end, after which their jobs return to the queue. Takes at most
  /// drain_seconds.
  void drain();
  /// Stops as drain() does, but leaves training workers running for the next daemon, if
  /// unattended_seconds lets them.
  void leave();
  /// For a second signal: kills all workers and waits until they have ended. Their jobs resume from
  /// their last checkpoints.
  void kill_workers();
  /// Reads token_file again: a token that is no longer in it is refused from then on. Checks the
  /// certificate, which gRPC reads again itself. A file with an error changes nothing and is
  /// logged.
  void read_secrets();
  /// Returns the TCP port that was bound; 0 without one.
  int port() const;
  /// Returns the address and the keys for remote workers; null if none are served.
  const WorkerEndpoint* worker_endpoint() const;

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// `trainyardd --check`: checks everything that start() would use and all data in the state folder.
/// Changes nothing and serves nothing. `line` gets each result as soon as it is known, `progress`
/// names the data that is read next. Returns false if something is damaged. Returns an error if
/// something prevents the check, or would prevent a start.
Result<bool> check_installation(const Config& config,
                                const std::function<void(const std::string&)>& line,
                                const std::function<void(const std::string&)>& progress);

/// `trainyardd --undo-upgrade`: calls undo_upgrade() for the configured state folder and returns a
/// message for the user.
Result<std::string> undo_upgrade_of(const Config& config);

}  // namespace trainyard::server
