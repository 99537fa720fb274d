// tests/bench/schedule_sim/simulation.h: processes events in the order of their time, drawn from a
// seed.
//
// Jobs arrive, start, take steps, end, are withdrawn and lose their workers; devices fail and
// recover; other processes allocate memory and free it. After all events of an instant the policy
// decides, the world carries out the decision, and the invariants are checked:
//
//   waiting, resting, gang, kind, usable, slots, bytes, cores, exclusive   of each start (world.h)
//   preemption    only a job that has run long enough, for a waiting one of higher priority
//   returned      a preempted job runs again, and in the end every job has run to its end
//   starved       no job waits longer than the bound, nor until the end of the run
//   first         the first job in order starts if it fits                        (with `strict`)
//   reservation   the time at which the first in order fits never moves later     (with `strict`)
//
// A run ends when no job has ended for 60 days. A job that still waits then counts as starved. The
// exception is a job that the devices could not have run in the last 30 of these days even without
// any other job, because of failures and memory used by other processes. No policy can help such
// jobs, so they are counted separately.
//
// `strict` is for runs in which forecasts are exact and only jobs come and go; at each event it
// costs time in proportion to the jobs and devices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "tests/bench/schedule_sim/policy.h"
#include "tests/bench/schedule_sim/random.h"
#include "tests/bench/schedule_sim/world.h"

namespace trainyard::sim {

struct SimulationOptions {
  uint64_t seed = 1;
  Physics physics;
  double device_mtbf_hours = 0;  // mean time between failures of one GPU; 0: no failures
  double device_repair_hours = 2;
  double worker_mtbf_hours = 0;  // mean time between losses of a job's worker; 0: no losses
  double others_share = 0;       // the share of GPUs that other processes use at a time
  double others_hours = 1;       // how long another process uses a GPU
  int64_t starvation_us = 0;     // the longest allowed wait; 0: no bound
  bool strict = false;
  int64_t until_event = 0;  // the run stops there; 0: runs to the end
};

/// The waiting times of a class of jobs.
struct WaitFigures {
  int64_t jobs = 0;
  double mean_s = 0, p50_s = 0, p95_s = 0, p99_s = 0, max_s = 0;
  // The mean bounded slowdown: the time from arrival to end, divided by the time that the job takes
  // alone on a GPU of speed 1 (a CPU job on the CPU) or 10 s if that is longer; at least 1. It
  // therefore includes the cost of sharing a device.
  double slowdown = 0;
  double whole_s = 0;  // mean time from arrival to end
};

struct Results {
  std::string policy;
  uint64_t digest = 0;
  int64_t events = 0, decisions = 0;
  int64_t done = 0, withdrawn = 0, left = 0;
  int64_t never_held = 0;          // jobs left that the devices could never hold, even alone
  std::string never_held_example;  // one such job
  double makespan_hours = 0;
  // share of the GPUs' time, until the last arrival, in which they have a job
  double busy_share = 0;
  double work_share = 0;   // the work done, in GPU-hours alone on a GPU of speed 1, relative to the
                           // available GPU-hours
  double jain = 1;         // Jain's index of the GPU time per hour of owners that had waiting jobs
                           // during the whole hour
  int64_t jain_hours = 0;  // hours with at least two such owners
  int64_t preemptions = 0, useless_preemptions = 0, worker_losses = 0;
  double lost_share = 0;  // the share of the jobs' GPU time that was redone or spent on restarts
  std::map<std::string, WaitFigures> waits;                        // by class; "all" has all jobs
  double decide_p50_ms = 0, decide_p99_ms = 0, decide_max_ms = 0;  // CPU time of decide()
  double index_p50_ms = 0, index_p99_ms = 0;  // CPU time of updating the policy's indexes
  int64_t waiting_max = 0;
  int jobs_on_gpu_max = 0;
  std::vector<Violation> violations;  // the first few of each invariant
  std::map<std::string, int64_t> violation_counts;
  int64_t count(const std::string& invariant) const {
    const auto found = violation_counts.find(invariant);
    return found == violation_counts.end() ? 0 : found->second;
  }
  int64_t violation_count() const {
    int64_t sum = 0;
    for (const auto& [invariant, times] : violation_counts) sum += times;
    return sum;
  }
};

/// Returns the job's class by its request and duration, such as "1 GPU < 1 h" or "cpu".
std::string class_of(const TraceJob& job);
const std::vector<std::string>& class_names();

using MakePolicy = std::function<std::unique_ptr<SchedulingPolicy>(const World&)>;
/// Describes a job in one line.
std::string describe(const TraceJob& job);

class Simulation {
 public:
  Simulation(const Cluster& cluster, std::vector<TraceJob> jobs, SimulationOptions options);
  /// May be called once.
  Results run(SchedulingPolicy& policy);
  const World& world() const { return world_; }
  /// Returns a line for each job that is not over, and for each device that is not idle.
  std::string describe() const;

 private:
  enum class Kind : uint8_t {
    kArrive,
    kWithdraw,
    kRun,
    kEnd,
    kLose,
    kStopped,
    kFail,
    kRepair,
    kOthersCome,
    kOthersGo,
    kWake
  };
  struct Event {
    int64_t time_us;
    int64_t number;
    Kind kind;
    int subject;
    int64_t version;
    bool operator>(const Event& o) const {
      return time_us != o.time_us ? time_us > o.time_us : number > o.number;
    }
  };

  void schedule(int64_t time_us, Kind kind, int subject, int64_t version = 0);
  void schedule_first();
  void handle(const Event& event, SchedulingPolicy& policy);
  void lose_worker(int id);
  void fail(int device);
  void let_others_come(int device);
  void reschedule_touched(SchedulingPolicy& policy);
  void tell(SchedulingPolicy& policy, int id);
  void report_device(SchedulingPolicy& policy, int device);
  void decide(SchedulingPolicy& policy);
  void carry_out(const Plan& plan, SchedulingPolicy& policy);
  void note(int64_t a, int64_t b, int64_t c);
  void integrate();
  void close_hour();
  void check_invariants();
  void note_never_held();
  void check_end();
  bool is_ahead(int a, int b) const;  // whether job a is ahead of b, ignoring owners
  int first_in_order() const;
  int64_t earliest_fit_us(int id) const;
  Results collect(const SchedulingPolicy& policy);

  World world_;
  const SimulationOptions options_;
  Random failures_, others_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t number_ = 0;
  int64_t handled_ = 0, decisions_ = 0;
  uint64_t digest_ = 14695981039346656037ull;
  int64_t last_arrival_us_ = 0;
  int64_t last_us_ = 0;
  int64_t open_jobs_ = 0;
  bool stands_still_ = false;  // no job has ended for half of kStuckUs
  // jobs that the devices have not been able to hold since then, in queue order
  std::vector<int> never_held_;
  int64_t wake_us_ = -1;
  double busy_gpu_us_ = 0, had_gpu_us_ = 0, work_us_ = 0;
  int64_t useless_preemptions_ = 0;
  std::vector<int> lost_to_failure_;  // the policy has not been notified of them yet
  std::map<int, int> victims_of_;     // preempted jobs that still run; values: the beneficiary
  // The current hour's GPU time and waiting: owner_parts_ is by job, the vectors
  // are by owner.
  struct OwnerPart {  // one job's contribution to its owner
    bool waits = false, has = false;
    int64_t since_us = 0;
  };
  std::map<int, OwnerPart> owner_parts_;
  std::vector<double> owner_gpu_us_;
  std::vector<int> owner_waiting_;
  std::vector<bool> owner_waited_;  // during the whole hour
  int64_t hour_us_ = 0;
  double jain_sum_ = 0;
  int64_t jain_hours_ = 0;
  std::vector<double> decide_ms_, index_ms_;
  double index_now_ms_ = 0;
  int64_t waiting_max_ = 0;
  int jobs_on_gpu_max_ = 0;
  // With `strict`: the first job in queue order, and the time at which it is promised to start.
  int promised_ = -1;
  int64_t promise_us_ = 0;
};

/// Removes ever smaller parts of the jobs as long as the invariant is still violated. Returns the
/// fewest jobs found.
std::vector<TraceJob> shrink(const Cluster& cluster, std::vector<TraceJob> jobs,
                             const SimulationOptions& options, const MakePolicy& make_policy,
                             const std::string& invariant);

}  // namespace trainyard::sim
