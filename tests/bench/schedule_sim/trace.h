// tests/bench/schedule_sim/trace.h: the machines of a simulation and the jobs that arrive.
//
// Jobs are drawn at random, not replayed; their distributions follow published figures of GPU
// clusters. A duration is the time alone on a GPU of speed 1. Only the simulation knows it; a
// policy sees a forecast whose error has the stated spread.
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
  double share = 1;  // the model's weight among the cluster's GPUs
};

struct ClusterOptions {
  int gpus = 8;
  int gpus_per_host = 8;
  std::vector<GpuModel> models = {
      {"H200", 141 * kGiB, 2.0, 1}, {"A100", 80 * kGiB, 1.0, 2}, {"L4", 24 * kGiB, 0.4, 1}};
  bool gangs_within_host = false;  // jobs cannot use GPUs of several hosts
  int gpu_slots = 4;               // jobs at a time on a GPU, for policies that share GPUs
  int cores_per_host = 64;
  int64_t memory_per_host = 512 * kGiB;
  int64_t overhead_bytes = kGiB / 2;  // memory of a process on a GPU in addition to its plan
};

struct Machine {
  Device device;
  double speed = 1;
  int host = 0;
  int group = 0;  // devices of the same group may run a job together; 0 is the CPU
};

/// The CPU first, then the GPUs; the models alternate host by host.
struct Cluster {
  std::vector<Machine> machines;
  int group_count = 0;
  int gpu_count = 0;
  double gpu_speed = 0;  // sum over all GPUs
};
Cluster make_cluster(const ClusterOptions& options);

struct TraceJob {
  int64_t arrive_us = 0;
  int owner = 0;
  int priority = 0;
  DeviceWish wish = DeviceWish::kGpu;
  int gpus = 1;
  int cores = 1;                 // cores of the CPU, if it runs there
  int64_t bytes = 0;             // bytes that its plan needs on each device
  int64_t work_us = 0;           // duration alone on a GPU of speed 1
  double cpu_slowdown = 20;      // its time on the CPU relative to a GPU of speed 1
  double demand = 1;             // the share of a GPU's time that it uses when alone
  double ends_at = 1;            // the share of its work after which it ends; below 1: early
  double forecast_factor = 1;    // its forecast before it runs, relative to the truth
  double measured_factor = 1;    // its forecast after its first steps, relative to the truth
  bool is_forecast = true;       // false: the daemon's scheduler gets no forecast
  bool exclusive = false;        // requests a device for itself
  int64_t cancel_after_us = -1;  // time from arrival after which it is withdrawn if it still waits
};

enum class TraceShape : uint8_t { kPhilly, kHelios, kPai };
const char* name_of(TraceShape shape);

struct TraceOptions {
  TraceShape shape = TraceShape::kHelios;
  uint64_t seed = 1;
  int jobs = 1000;
  int owners = 40;
  double load = 0.75;             // offered load relative to the GPUs' time, each job alone
  double forecast_spread = 0.4;   // sigma of ln(forecast / truth), before the first step
  double measured_spread = 0.03;  // sigma of ln(forecast / truth), after the first steps
  double cpu_share = 0.05;        // share of jobs that request the CPU
  double auto_share = 0.1;        // share of jobs that accept either kind of device
  double urgent_share = 0.03;     // share of jobs with priority 10
  double cancel_share = 0.02;     // share of jobs that are withdrawn while they wait
  bool early_ends = true;         // failures and kills as often as in the papers
  bool sharing = true;            // demands below 1, and plans smaller than a device
};

/// Returns jobs in the order of arrival. Each job fits some devices of the cluster.
std::vector<TraceJob> make_trace(const TraceOptions& options, const Cluster& cluster);

/// Figures of a generated trace, for comparison with the papers.
struct TraceFigures {
  double median_s = 0, mean_s = 0, p90_s = 0;      // durations of GPU jobs, including early ends
  double single_share = 0, single_time_share = 0;  // single-GPU jobs: share of jobs, of GPU time
  double large_share = 0, large_time_share = 0;    // jobs with at least 8 GPUs: the same
  double top_owner_share = 0;                      // the share of jobs from the 5 % busiest owners
  double span_hours = 0;                           // from the first to the last arrival
};
TraceFigures figures_of(const std::vector<TraceJob>& jobs);

}  // namespace trainyard::sim
