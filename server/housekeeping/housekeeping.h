// server/housekeeping/housekeeping.h: the daemon's background cleanup. It deletes leftovers of
// killed daemons in the folders of finished jobs and old output of workers, and applies the rules
// keep_jobs and keep_events (server/housekeeping/retention.h) and keep_audit.
//
// It works in pieces. After each piece the thread sleeps as long as the piece took, and it pauses
// during backups.
#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>
#include <thread>

#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/housekeeping/retention.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"

namespace trainyard::server {

/// The daemon's parts that Housekeeping and Garbage refer to. They must outlive both.
struct HousekeepingParts {
  const Config& config;
  const StatePaths& paths;
  const Clock& clock;
  Files& files;
  Store& store;
  ClockJumps& jumps;
  const std::atomic<bool>& draining;
  const std::atomic<bool>& backing_up;
};

class Housekeeping {
 public:
  explicit Housekeeping(const HousekeepingParts& parts)
      : parts_(parts),
        retention_(parts.store, parts.files, parts.paths, parts.clock, parts.jumps) {}
  ~Housekeeping() { stop(); }
  /// Starts the thread. It cleans up immediately and again after each pause.
  void start(int64_t pause_ms);
  /// Stops after the current piece. Idempotent.
  void stop();

 private:
  void tidy_jobs(const std::stop_token& stop);
  void tidy_models(const std::stop_token& stop);
  void apply_rules(const std::stop_token& stop);
  void remove_old_audit(const std::stop_token& stop);
  /// Sleeps as long as the work since `began_us` took (at most 200 ms), and during backups. False
  /// if the thread must stop.
  bool rest(const std::stop_token& stop, int64_t began_us) const;

  const HousekeepingParts parts_;
  Retention retention_;
  std::jthread thread_;
};

}  // namespace trainyard::server
