// tests/bench/schedule_sim/policy.h: who decides in a simulation.
//
// A policy sees jobs, devices and forecasts through the world's const functions, is told of every
// change, and says what to do. Those that stand beside the daemon's give each job whole GPUs, as
// the clusters of the papers do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/schedule_sim/world.h"

namespace trainyard::sim {

struct Start {
  int job;
  std::vector<int> devices;
};
struct Preempt {
  int victim;
  int beneficiary;
};
struct Plan {
  std::vector<Start> starts;
  std::vector<Preempt> preempts;
  std::optional<int64_t> wake_us;
  bool more = false;  // decide again once these are placed
};

class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  virtual std::string_view name() const = 0;
  /// The job waits, is placed, or is gone: whatever its phase says now.
  virtual void job_changed(const World& world, int id) = 0;
  /// Its forecast end has moved.
  virtual void forecast_changed(const World& world, int id) { job_changed(world, id); }
  virtual void device_changed(const World& world, int device) = 0;
  virtual Plan decide(const World& world) = 0;
  /// The time that it lets a job run at a stretch.
  virtual int64_t least_run_us() const { return 0; }
};

/// First come, first served: the first that does not fit holds up all behind it that could use the
/// same kind of device.
std::unique_ptr<SchedulingPolicy> make_fifo(const World& world);
/// The same by priority.
std::unique_ptr<SchedulingPolicy> make_strict_priority(const World& world);
/// EASY backfill (Lifka, JSSPP 1995): by priority; the first that does not fit has a reservation,
/// and those behind it start where its reserved start does not move, by forecasts.
std::unique_ptr<SchedulingPolicy> make_easy_backfill(const World& world);

struct TrainyardOptions {
  bool preemption = true;
  int64_t preempt_after_us = 600 * kSecondUs;
  int64_t reserved_idle_max_us = 600 * kSecondUs;
  int64_t half_life_us = 24 * kHourUs;  // 0: owners do not matter
  double forecast_spread = 0;           // as of the trace: how wide forecasts say that they are
  double measured_spread = 0.03;        // the same after the first steps
};
/// The daemon's own: Queue and decide().
std::unique_ptr<SchedulingPolicy> make_trainyard(const World& world, TrainyardOptions options = {});

}  // namespace trainyard::sim
