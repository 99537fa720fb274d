// tests/bench/schedule_sim/world.h: the true state of machines and jobs, whatever a policy assumes.
//
// The world carries out the decisions of a policy and checks them: each start and each preemption
// must follow a simple restatement of the rules. It keeps its own account of bytes, slots and
// cores, and shares no code with the scheduler.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/bench/schedule_sim/trace.h"

namespace trainyard::sim {

enum class Phase : uint8_t { kComing, kWaiting, kStarting, kRunning, kStopping, kDone, kWithdrawn };

/// The state of a job.
struct JobState {
  Phase phase = Phase::kComing;
  std::vector<int> devices;  // while it is placed
  std::optional<DeviceKind> kind_before;
  int64_t first_start_us = -1;
  int64_t end_us = -1;
  int64_t wait_since_us = 0;
  int64_t waited_us = 0;   // total waiting time
  int64_t attempt_us = 0;  // start of the attempt
  int64_t retry_us = 0;    // the job cannot start before
  double done_us = 0;      // part of its work done, as of rate_us
  double saved_us = 0;     // part of its work that its newest checkpoint contains
  int64_t saved_time_us = 0;
  double rate = 0;  // work per time
  int64_t rate_us = 0;
  int32_t attempts = 0, preemptions = 0, losses = 0;
  int64_t version = 0;  // incremented to invalidate events of an earlier attempt or rate
  int preempted_for = -1;
};

/// The state of a device.
struct DeviceState {
  std::vector<int> jobs;
  int64_t planned_bytes = 0;  // including the overhead of each process
  int32_t cores = 0;
  int64_t others_bytes = 0;  // memory used by other processes
  bool failed = false;
};

struct Violation {
  std::string invariant;
  std::string text;
  int64_t event = 0;
  int64_t time_us = 0;
};

/// The behaviour of jobs on devices.
struct Physics {
  int64_t start_us = 5 * kSecondUs;         // from the decision to the first step
  int64_t stop_us = 3 * kSecondUs;          // from a preemption to the end of the process
  int64_t checkpoint_us = 600 * kSecondUs;  // between checkpoints
  bool interference = true;                 // jobs that share a GPU slow each other
};

class World {
 public:
  World(Cluster cluster, std::vector<TraceJob> jobs, Physics physics);

  const Cluster& cluster() const { return cluster_; }
  const std::vector<Machine>& machines() const { return cluster_.machines; }
  const std::vector<TraceJob>& jobs() const { return jobs_; }
  const TraceJob& job(int id) const { return jobs_[static_cast<size_t>(id)]; }
  const JobState& state(int id) const { return states_[static_cast<size_t>(id)]; }
  const DeviceState& device(int id) const { return devices_[static_cast<size_t>(id)]; }
  const Machine& machine(int id) const { return cluster_.machines[static_cast<size_t>(id)]; }
  const std::set<int>& waiting() const { return waiting_; }
  const Physics& physics() const { return physics_; }
  int64_t now_us() const { return now_us_; }

  // The facts about a job that policies may use; never its true end.

  /// Returns the forecast duration of an attempt alone on a device of this speed.
  int64_t forecast_us(int id, double speed) const;
  /// Returns the forecast end of a placed job.
  int64_t forecast_end_us(int id) const;
  double speed_on(int id, const Machine& machine) const {
    return machine.device.kind == DeviceKind::kCpu ? 1 / job(id).cpu_slowdown : machine.speed;
  }

  // Changes. Functions that end or slow other jobs add these to take_touched().

  void advance(int64_t now_us) { now_us_ = now_us; }
  void arrive(int id);
  void withdraw(int id);
  /// Checks the placement and carries it out, even if it is not allowed.
  void start(int id, const std::vector<int>& devices);
  void run(int id);
  /// Preempts `victim` to make room for `beneficiary`.
  void preempt(int victim, int beneficiary, int64_t least_run_us);
  void end(int id);
  /// Requeues the job with all of its work, or with the work in its newest checkpoint.
  void requeue(int id, bool saved, int64_t retry_us);
  void set_failed(int device, bool failed);
  void set_others(int device, int64_t bytes);

  /// Returns the jobs whose end has changed since the last call.
  std::vector<int> take_touched();
  /// Returns the end of the job if nothing changes.
  int64_t true_end_us(int id) const;

  /// Returns whether the job may start on this device now: by bytes, slots, cores and
  /// exclusiveness.
  bool fits(int id, int device) const;
  /// Returns whether the job will fit on the device at `time_us` if other jobs end as forecast and
  /// none comes.
  bool fits_at(int id, int device, int64_t time_us) const;
  /// Returns whether the devices could run the job now without any other job.
  bool would_hold(int id) const;
  bool kind_allowed(int id, DeviceKind kind) const;
  bool kind_usable(DeviceKind kind) const;

  void violate(std::string invariant, std::string text);
  void set_event(int64_t event) { event_ = event; }
  /// Returns the first few of each invariant.
  const std::vector<Violation>& violations() const { return violations_; }
  const std::map<std::string, int64_t>& violation_counts() const { return violation_counts_; }
  double lost_gpu_us() const { return lost_gpu_us_; }
  int busy_gpus() const { return busy_gpus_; }  // with at least one job
  int placed_gpus() const {
    return placed_gpus_;
  }  // summed over jobs: shared GPUs count several times
  /// Returns the sum over all GPU jobs of their work per time, weighted by their GPUs.
  double work_rate() const { return work_rate_; }

 private:
  JobState& mut(int id) { return states_[static_cast<size_t>(id)]; }
  DeviceState& dev(int id) { return devices_[static_cast<size_t>(id)]; }
  void settle(int id);  // sets the job's done_us to the work done until now
  void set_rate(int id, double rate);
  void leave_devices(int id);
  void update_rates(const std::vector<int>& devices);
  void check_start(int id, const std::vector<int>& devices);
  static constexpr int64_t kReportedMax = 3;  // per invariant

  Cluster cluster_;
  std::vector<TraceJob> jobs_;
  Physics physics_;
  std::vector<JobState> states_;
  std::vector<DeviceState> devices_;
  std::set<int> waiting_;  // job IDs in order of arrival
  std::vector<int> touched_;
  std::vector<Violation> violations_;
  std::map<std::string, int64_t> violation_counts_;
  int64_t now_us_ = 0;
  int64_t event_ = 0;
  int busy_gpus_ = 0, placed_gpus_ = 0;
  double work_rate_ = 0;
  double lost_gpu_us_ = 0;  // work that was done and lost, and the time of starts and stops
};

}  // namespace trainyard::sim
