// tests/bench/schedule_sim/simulation.h: events in order of their time, from a seed.
//
// Jobs come, start, take steps, end, are withdrawn and lose their workers; devices fail and return;
// processes outside take memory and give it back. After all events of an instant the policy
// decides, the world carries it out, and the invariants are checked:
//
//   waiting, resting, gang, kind, usable, slots, bytes, cores, exclusive   of each start (world.h)
//   preemption    only a job that has run long enough, for one of higher priority that waits
//   returned      what was preempted runs again, and in the end every job has run to its end
//   starved       none waits longer than the bound, nor to the end of time
//   first         the first in order starts where it fits                         (with `strict`)
//   reservation   the time at which the first in order fits never moves later     (with `strict`)
//
// A run ends when no job has ended for 60 days. Who waits then is starved, unless the devices, as
// failures and processes outside left them, would not have held it in the last 30 of these days
// even without any other job: that no policy can mend, so such jobs are counted by themselves.
//
// `strict` is for runs in which forecasts hold and nothing but jobs comes and goes; it costs time
// in proportion to the jobs and devices at each event.
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
  double device_mtbf_hours = 0;  // of one GPU; 0: none fails
  double device_repair_hours = 2;
  double worker_mtbf_hours = 0;  // of one job's worker; 0: none is lost
  double others_share = 0;       // of GPUs: that processes outside use at a time
  double others_hours = 1;       // how long one stays
  int64_t starvation_us = 0;     // the bound; 0: none
  bool strict = false;
  int64_t until_event = 0;  // ends there; 0: at the end
};

/// What a class of jobs waited.
struct WaitFigures {
  int64_t jobs = 0;
  double mean_s = 0, p50_s = 0, p95_s = 0, p99_s = 0, max_s = 0;
  // Mean bounded slowdown: from arrival to end, in times of what it takes alone on a GPU of speed 1
  // (a CPU job on the CPU), or of 10 s; at least 1. So what sharing a device costs is in it.
  double slowdown = 0;
  double whole_s = 0;  // mean from arrival to end
};

struct Results {
  std::string policy;
  uint64_t digest = 0;
  int64_t events = 0, decisions = 0;
  int64_t done = 0, withdrawn = 0, left = 0;
  int64_t never_held = 0;          // of those left: the devices had no room, jobs or not
  std::string never_held_example;  // one of them
  double makespan_hours = 0;
  double busy_share = 0;   // of the GPUs' time until the last arrival: some job was on it
  double work_share = 0;   // GPU-hours of work done alone, in times the GPU-hours there were
  double jain = 1;         // of GPU time per hour between owners with jobs waiting all the hour
  int64_t jain_hours = 0;  // hours with two such owners or more
  int64_t preemptions = 0, useless_preemptions = 0, worker_losses = 0;
  double lost_share = 0;  // of the GPUs' time that jobs had: redone, or for starting again
  std::map<std::string, WaitFigures> waits;                        // by class; "all"
  double decide_p50_ms = 0, decide_p99_ms = 0, decide_max_ms = 0;  // CPU time of decide()
  double index_p50_ms = 0, index_p99_ms = 0;  // the same, of keeping the policy's indexes
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

/// "1 GPU < 1 h", "cpu", ...: by what it asks for and how long it runs.
std::string class_of(const TraceJob& job);
const std::vector<std::string>& class_names();

using MakePolicy = std::function<std::unique_ptr<SchedulingPolicy>(const World&)>;
/// What a job is, in one line.
std::string describe(const TraceJob& job);

class Simulation {
 public:
  Simulation(const Cluster& cluster, std::vector<TraceJob> jobs, SimulationOptions options);
  /// Once.
  Results run(SchedulingPolicy& policy);
  const World& world() const { return world_; }
  /// A line for each job that is not over, and for each device that is not idle.
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
  void tell_device(SchedulingPolicy& policy, int device);
  void decide(SchedulingPolicy& policy);
  void carry_out(const Plan& plan, SchedulingPolicy& policy);
  void note(int64_t a, int64_t b, int64_t c);
  void integrate();
  void close_hour();
  void check_invariants();
  void note_never_held();
  void check_end();
  bool is_ahead(int a, int b) const;  // in order, where owners do not matter
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
  bool stands_still_ = false;    // no job has ended for half of the time after which a run ends
  std::vector<int> never_held_;  // in that time; in order
  int64_t wake_us_ = -1;
  double busy_gpu_us_ = 0, had_gpu_us_ = 0, work_us_ = 0;
  int64_t useless_preemptions_ = 0;
  std::vector<int> lost_to_failure_;  // whose policy has not been told yet
  std::map<int, int> victims_of_;     // jobs that still leave for a beneficiary
  // Of the hour that runs, by owner.
  struct OwnerPart {  // what one job adds to its owner's
    bool waits = false, has = false;
    int64_t since_us = 0;
  };
  std::map<int, OwnerPart> owner_parts_;
  std::vector<double> owner_gpu_us_;
  std::vector<int> owner_waiting_;
  std::vector<bool> owner_waited_;  // all the hour
  int64_t hour_us_ = 0;
  double jain_sum_ = 0;
  int64_t jain_hours_ = 0;
  std::vector<double> decide_ms_, index_ms_;
  double index_now_ms_ = 0;
  int64_t waiting_max_ = 0;
  int jobs_on_gpu_max_ = 0;
  // Of the first in order, with `strict`.
  int promised_ = -1;
  int64_t promise_us_ = 0;
};

/// The fewest jobs found that still violate the invariant: by leaving out ever smaller parts.
std::vector<TraceJob> shrink(const Cluster& cluster, std::vector<TraceJob> jobs,
                             const SimulationOptions& options, const MakePolicy& make_policy,
                             const std::string& invariant);

}  // namespace trainyard::sim
