// tests/bench/schedule_sim/trace.h: the machines of a simulation and the jobs that come to them.
//
// Jobs are drawn, not replayed: their shapes follow what was published of GPU clusters. A duration
// is the time on a GPU of speed 1, alone; it is known to the simulation and never to a policy,
// which sees a forecast that is wrong by the stated spread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/scheduler/scheduler.h"
#include "src/planning/devices.h"

namespace trainyard::sim {

inline constexpr int64_t kSecondUs = 1'000'000;
inline constexpr int64_t kHourUs = 3600 * kSecondUs;
inline constexpr int64_t kGiB = int64_t{1} << 30;

struct GpuModel {
  std::string name;
  int64_t memory_bytes = 0;
  double speed = 1;
  double share = 1;  // of the cluster's GPUs, as a weight
};

struct ClusterOptions {
  int gpus = 8;
  int gpus_per_host = 8;
  std::vector<GpuModel> models = {
      {"H200", 141 * kGiB, 2.0, 1}, {"A100", 80 * kGiB, 1.0, 2}, {"L4", 24 * kGiB, 0.4, 1}};
  bool gangs_within_host = false;  // GPUs of other hosts do not share a job
  int gpu_slots = 4;               // jobs at a time on a GPU, where the policy packs
  int cores_per_host = 64;
  int64_t memory_per_host = 512 * kGiB;
  int64_t overhead_bytes = kGiB / 2;  // of a process on a GPU, beside its plan
};

struct Machine {
  Device device;
  double speed = 1;
  int host = 0;
  int group = 0;  // devices with equal values may share a job; 0 is the CPU
};

/// The CPU first, then GPUs, models in turns host by host.
struct Cluster {
  std::vector<Machine> machines;
  int group_count = 0;
  int gpu_count = 0;
  double gpu_speed = 0;  // of all GPUs together
};
Cluster make_cluster(const ClusterOptions& options);

struct TraceJob {
  int64_t arrive_us = 0;
  int owner = 0;
  int priority = 0;
  DeviceWish wish = DeviceWish::kGpu;
  int gpus = 1;
  int cores = 1;                 // of a CPU, if it runs there
  int64_t bytes = 0;             // that its plan needs on each device
  int64_t work_us = 0;           // alone on a GPU of speed 1
  double cpu_slowdown = 20;      // its time on the CPU, in times on a GPU of speed 1
  double demand = 1;             // the share of a GPU's time that it takes alone
  double ends_at = 1;            // the share of its work after which it ends: below 1, early
  double forecast_factor = 1;    // what its forecast says before it runs, in times the truth
  double measured_factor = 1;    // the same after its first steps
  bool is_forecast = true;       // false: the daemon's scheduler is told of no end
  bool exclusive = false;        // asks for a device of its own
  int64_t cancel_after_us = -1;  // from arrival, if it still waits by then
};

enum class TraceShape : uint8_t { kPhilly, kHelios, kPai };
const char* name_of(TraceShape shape);

struct TraceOptions {
  TraceShape shape = TraceShape::kHelios;
  uint64_t seed = 1;
  int jobs = 1000;
  int owners = 40;
  double load = 0.75;             // offered, in shares of the GPUs' time, each job alone
  double forecast_spread = 0.4;   // sigma of ln(forecast / truth), before the first step
  double measured_spread = 0.03;  // the same after the first steps
  double cpu_share = 0.05;        // of jobs: ask for the CPU
  double auto_share = 0.1;        // of jobs: take either
  double urgent_share = 0.03;     // of jobs: priority 10
  double cancel_share = 0.02;     // of jobs: withdrawn while they wait
  bool early_ends = true;         // failures and kills as often as the papers tell
  bool sharing = true;            // demands below 1 and plans below a whole device
};

/// In order of arrival. Each job fits some devices of the cluster.
std::vector<TraceJob> make_trace(const TraceOptions& options, const Cluster& cluster);

/// What a trace turned out to be, for comparison with the papers.
struct TraceFigures {
  double median_s = 0, mean_s = 0, p90_s = 0;      // of GPU jobs, as they end
  double single_share = 0, single_time_share = 0;  // of GPU jobs, and of their GPU time
  double large_share = 0, large_time_share = 0;    // 8 GPUs and more
  double top_owner_share = 0;                      // of jobs: from the 5 % busiest owners
  double span_hours = 0;                           // from the first arrival to the last
};
TraceFigures figures_of(const std::vector<TraceJob>& jobs);

}  // namespace trainyard::sim
