// server/service/daemon.h: the daemon as one object: what it is made of, in which order that comes
// up, and in which order it goes down. main.cc adds flags and signals; tests make one in-process.
#pragma once

#include <memory>
#include <optional>

#include "server/config/config.h"
#include "server/inventory/inventory.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::server {

/// What a test may replace.
struct DaemonParts {
  const Clock* clock = &system_clock();
  Files* files = &local_files();
  std::unique_ptr<Inventory> inventory;  // null: this machine's
  bool adopt_orphans = false;  // what workers left behind becomes ours, to be ended (main.cc)
  int64_t watch_heartbeat_ms = 15'000;
  int64_t worker_heartbeat_ms = 5'000;
  int64_t worker_kill_grace_ms = 5'000;  // from TERM to KILL for a silent or late worker
};

class Daemon {
 public:
  /// Opens the store, ends leftovers of an earlier daemon, puts their jobs back into the queue,
  /// serves, starts jobs. `config` is complete (complete_config). Refusals are one sentence each.
  static Result<std::unique_ptr<Daemon>> start(Config config, DaemonParts parts = {});
  /// drain(), if that was not called.
  ~Daemon();

  /// The graceful stop: not serving, no new jobs, streams end with a resume point, workers
  /// checkpoint and their jobs return to the queue. Takes at most drain_seconds.
  void drain();
  /// For a second signal: ends every worker now. Their jobs resume from their last checkpoint.
  void kill_workers();
  /// TCP port that was bound; 0 without one.
  int port() const;

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// `trainyardd --check`: opens what start() would open, serves nothing, and tells in lines what it
/// found. The error is the first thing that would keep the daemon from starting.
Result<std::string> check_installation(const Config& config);

}  // namespace trainyard::server
