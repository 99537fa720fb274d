// tests/bench/schedule_sim/policy.h: the scheduling policies of a simulation.
//
// A policy sees jobs, devices and forecasts through the world's const functions, is notified of
// every change, and decides what to do. The policies other than the daemon's give each job whole
// GPUs, as the clusters of the papers do.
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
  bool more = false;  // decide again once these jobs are placed
};

class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  virtual std::string_view name() const = 0;
  /// Called when the job's phase has changed: it may wait, be placed, or have ended.
  virtual void job_changed(const World& world, int id) = 0;
  /// Called when the job's forecast end has changed.
  virtual void forecast_changed(const World& world, int id) { job_changed(world, id); }
  virtual void device_changed(const World& world, int device) = 0;
  virtual Plan decide(const World& world) = 0;
  /// Returns the time for which the policy lets a job run before it may preempt it.
  virtual int64_t least_run_us() const { return 0; }
};

/// Makes the policy "first come, first served": the first job that does not fit blocks all later
/// jobs that could use the same kind of device.
std::unique_ptr<SchedulingPolicy> make_fifo(const World& world);
/// Makes the policy of strict priority: the first job by priority that does not fit blocks all
/// later jobs that could use the same kind of device.
std::unique_ptr<SchedulingPolicy> make_strict_priority(const World& world);
/// Makes EASY backfill (Lifka, JSSPP 1995), ordered by priority: the first job that does not fit
/// has a reservation, and later jobs start if by their forecasts they do not delay its reserved
/// start.
std::unique_ptr<SchedulingPolicy> make_easy_backfill(const World& world);

struct TrainyardOptions {
  bool preemption = true;
  int64_t preempt_after_us = 600 * kSecondUs;
  int64_t reserved_idle_max_us = 600 * kSecondUs;
  int64_t half_life_us = 24 * kHourUs;  // 0: owners are ignored
  double forecast_spread = 0;           // as in the trace: the stated width of forecasts
  double measured_spread = 0.03;        // the stated width after the first steps
};
/// Makes the daemon's own policy: Queue and decide().
std::unique_ptr<SchedulingPolicy> make_trainyard(const World& world, TrainyardOptions options = {});

}  // namespace trainyard::sim
