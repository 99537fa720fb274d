// server/service/housekeeping.h: what the daemon puts in order by itself, in the background: what
// a daemon that was killed left in the folders of finished jobs; workers' old output; and the
// rules keep_jobs and keep_events (server/service/retention.h).
//
// All is done in pieces; the thread rests after each for as long as it took, and stands back while
// a backup runs.
#pragma once

#include <cstdint>
#include <stop_token>
#include <thread>

#include "server/service/context.h"
#include "server/service/retention.h"

namespace trainyard::server {

class Housekeeping {
 public:
  explicit Housekeeping(ServiceContext& service)
      : service_(service), retention_(service.store, service.files, service.paths, service.clock) {}
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

  ServiceContext& service_;
  Retention retention_;
  std::jthread thread_;
};

}  // namespace trainyard::server
