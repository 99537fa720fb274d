// server/housekeeping/housekeeping.h: what the daemon puts in order by itself, in the background:
// what a daemon that was killed left in the folders of finished jobs; workers' old output; and the
// rules keep_jobs and keep_events (server/housekeeping/retention.h).
//
// All is done in pieces; the thread rests after each for as long as it took, and stands back while
// a backup runs.
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
  const std::atomic<bool>& draining;
  const std::atomic<bool>& backing_up;
};

class Housekeeping {
 public:
  explicit Housekeeping(const HousekeepingParts& parts)
      : parts_(parts), retention_(parts.store, parts.files, parts.paths, parts.clock) {}
  ~Housekeeping() { stop(); }
  /// Begins now, and again after each pause.
  void start(int64_t pause_ms);
  /// Ends with the piece that it is at. Idempotent.
  void stop();

 private:
  void tidy_jobs(const std::stop_token& stop);
  void tidy_models(const std::stop_token& stop);
  void apply_rules(const std::stop_token& stop);
  /// Rests for as long as since `began_us`, and while a backup runs. False if it must stop.
  bool rest(const std::stop_token& stop, int64_t began_us) const;

  const HousekeepingParts parts_;
  Retention retention_;
  std::jthread thread_;
};

}  // namespace trainyard::server
