#include "tests/bench/schedule_sim/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/bench/schedule_sim/random.h"

namespace trainyard::sim {
namespace {

// The figures of the papers, and the values chosen here to approximate them.
//
// Philly: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
//   Workloads", ATC 2019: 69.3 % of the jobs pass, 13.5 % are killed, 17.2 % fail; runtimes from
//   minutes to weeks; classes of 1, 2-4, 5-8 and more GPUs. Helios's authors give a mean of
//   28,329 s for it.
// Helios: Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
//   Datacenters", SC 2021: GPU jobs with a median of 206 s and a mean of 6,652 s; over half request
//   one GPU and use 3 to 12 % of the time; fewer than 10 % request 8 or more and use about
//   60 %; 62.4 % complete, 22.1 % are cancelled, 15.5 % fail; few submissions at night.
// PAI: Weng et al., "MLaaS in the Wild", NSDI 2022: a median of 23 min and a 90th percentile of
//   4.5 h; 5 % of the users submit 77 % of the instances; most use a small part of a GPU.
//
// The weights of the sizes, the growth of durations with size and the memory of a job are chosen
// here.
struct Shape {
  double median_s, sigma;
  double growth;                   // the exponent with which durations grow with the number of GPUs
  std::array<double, 7> sizes;     // weights of 1, 2, 4, ... 64 GPUs
  double killed, failed;           // shares of jobs that end early
  double owner_exponent;           // exponent of Zipf's law for the jobs of owners
  double demand_median;            // median of the share of a GPU that a job keeps busy
  double night;                    // arrivals at the quietest hour, relative to the mean
  double burst_share, burst_mean;  // the share of submissions that are bursts, and their mean size
};

constexpr Shape kPhilly = {2000,  2.30,  0.25, {0.80, 0.06, 0.07, 0.05, 0.015, 0.004, 0.001},
                           0.135, 0.172, 1.0,  0.50,
                           0.5,   0.10,  6};
constexpr Shape kHelios = {240,   2.64,  0.45, {0.62, 0.14, 0.15, 0.06, 0.02, 0.007, 0.003},
                           0.221, 0.155, 1.1,  0.50,
                           0.3,   0.10,  8};
constexpr Shape kPai = {1380, 1.92, 0.10, {0.93, 0.03, 0.02, 0.012, 0.005, 0.002, 0.001},
                        0.10, 0.20, 1.6,  0.15,
                        0.5,  0.25, 12};

const Shape& shape_of(TraceShape shape) {
  if (shape == TraceShape::kPhilly) return kPhilly;
  return shape == TraceShape::kPai ? kPai : kHelios;
}

constexpr double kLongestS = 7 * 24 * 3600.0;
constexpr double kShortestS = 2;

class Maker {
 public:
  Maker(const TraceOptions& options, const Cluster& cluster)
      : options_(options),
        shape_(shape_of(options.shape)),
        arrivals_(options.seed, 1),
        jobs_(options.seed, 2),
        forecasts_(options.seed, 3) {
    for (const Machine& m : cluster.machines) {
      if (m.device.kind != DeviceKind::kGpu) {
        cpu_cores_ = m.device.cores;
        continue;
      }
      auto& [count, bytes] = groups_[m.group];
      ++count;
      bytes = m.device.memory_bytes - m.device.overhead_bytes;
    }
    for (int owner = 0; owner < options.owners; ++owner) {
      owner_weights_.push_back(std::pow(owner + 1.0, -shape_.owner_exponent));
    }
  }

  std::vector<TraceJob> make(double gpu_speed) {
    std::vector<TraceJob> made;
    while (std::ssize(made) < options_.jobs) add_submission(made);
    // The offered load determines the arrival rate.
    double gpu_us = 0;
    for (const TraceJob& job : made) {
      if (job.wish != DeviceWish::kCpu)
        gpu_us += static_cast<double>(job.work_us) * job.gpus * job.ends_at;
    }
    spread_arrivals(made, gpu_us / (gpu_speed * options_.load));
    return made;
  }

 private:
  void add_submission(std::vector<TraceJob>& made) {
    const int owner = jobs_.weighted(owner_weights_);
    int count = 1;
    if (jobs_.chance(shape_.burst_share)) {
      count += static_cast<int>(jobs_.exponential(shape_.burst_mean));
    }
    TraceJob first = make_job(owner);
    for (int i = 0; i < count && std::ssize(made) < options_.jobs; ++i) {
      // A hyperparameter search: its members are like the first, a little longer or shorter, each
      // with its own end.
      TraceJob job = first;
      job.work_us = static_cast<int64_t>(static_cast<double>(job.work_us) *
                                         (i == 0 ? 1 : jobs_.lognormal(1, 0.2)));
      draw_end(job);
      job.arrive_us = i == 0 ? 0 : 1;  // 1: arrives together with the job before it
      made.push_back(job);
    }
  }

  /// Returns the largest memory of a device in groups of at least `gpus` equal devices.
  int64_t memory_for(int gpus) const {
    int64_t most = 0;
    for (const auto& [group, has] : groups_) {
      if (has.first >= gpus) most = std::max(most, has.second);
    }
    return most;
  }

  TraceJob make_job(int owner) {
    TraceJob job;
    job.owner = owner;
    const double kind = jobs_.uniform();
    const int drawn = 1 << jobs_.weighted(shape_.sizes);
    double seconds = jobs_.lognormal(shape_.median_s, shape_.sigma);
    const double bytes = jobs_.lognormal(6.0 * kGiB, 1.0);
    const double demand = jobs_.lognormal(shape_.demand_median, 0.8);
    const bool exclusive = jobs_.chance(0.02);
    job.priority = jobs_.chance(options_.urgent_share) ? 10 : 0;
    job.cpu_slowdown = jobs_.uniform(8, 30);
    job.cores = 1 + jobs_.below(8);
    if (jobs_.chance(options_.cancel_share)) {
      job.cancel_after_us = static_cast<int64_t>(jobs_.exponential(1800) * kSecondUs);
    }
    if (groups_.empty() || kind < options_.cpu_share) {
      job.wish = DeviceWish::kCpu;
      job.cpu_slowdown = 1;
    } else if (kind < options_.cpu_share + options_.auto_share) {
      job.wish = DeviceWish::kAuto;
    } else {
      job.exclusive = exclusive;
      job.gpus = drawn;
      while (memory_for(job.gpus) == 0) job.gpus /= 2;
    }
    job.cores = std::min(job.cores, cpu_cores_);
    seconds = std::clamp(seconds * std::pow(job.gpus, shape_.growth), kShortestS, kLongestS);
    job.work_us = static_cast<int64_t>(seconds * kSecondUs);
    // Jobs with several GPUs are large models, which use whole GPUs.
    const bool shares = options_.sharing && job.gpus == 1;
    job.demand = shares ? std::clamp(demand, 0.02, 1.0) : 1.0;
    const int64_t most = job.wish == DeviceWish::kCpu ? 64 * kGiB : memory_for(job.gpus);
    const double wanted =
        options_.sharing ? bytes * std::sqrt(job.gpus) : 0.9 * static_cast<double>(most);
    job.bytes =
        static_cast<int64_t>(std::clamp(wanted, 0.25 * kGiB, 0.97 * static_cast<double>(most)));
    return job;
  }

  void draw_end(TraceJob& job) {
    const double end = jobs_.uniform();
    const double at = jobs_.uniform(0.01, 1);
    if (options_.early_ends) {
      if (end < shape_.failed) {
        job.ends_at = at * at;  // mistakes show early
      } else if (end < shape_.failed + shape_.killed) {
        job.ends_at = at;
      } else {
        job.ends_at = 1;
      }
    }
    job.forecast_factor = forecasts_.lognormal(1, options_.forecast_spread);
    job.measured_factor =
        forecasts_.lognormal(1, std::min(options_.measured_spread, options_.forecast_spread));
  }

  /// Returns the arrival rate at this time, relative to the mean: low at night, as in Helios.
  double arrivals_at(double us) const {
    const double hour = std::fmod(us / kHourUs, 24);
    return 1 - (1 - shape_.night) * std::cos(2 * std::numbers::pi * hour / 24);
  }

  void spread_arrivals(std::vector<TraceJob>& made, double span_us) {
    const auto submissions = std::ranges::count(made, 0, &TraceJob::arrive_us);
    const double gap_us = span_us / static_cast<double>(std::max<int64_t>(1, submissions));
    const double most = 2 - shape_.night;
    double now = 0;
    for (TraceJob& job : made) {
      if (job.arrive_us == 0) {
        do {  // thinning of a Poisson process
          now += arrivals_.exponential(gap_us / most);
        } while (!arrivals_.chance(arrivals_at(now) / most));
      } else {
        now += arrivals_.uniform(0, 0.2) * kSecondUs;
      }
      job.arrive_us = static_cast<int64_t>(now);
    }
  }

  const TraceOptions& options_;
  const Shape& shape_;
  Random arrivals_, jobs_, forecasts_;
  std::map<int, std::pair<int, int64_t>> groups_;  // key: group; values: number of equal GPUs,
                                                   // memory of each that plans can use
  std::vector<double> owner_weights_;
  int cpu_cores_ = 1;
};

}  // namespace

const char* name_of(TraceShape shape) {
  if (shape == TraceShape::kPhilly) return "philly";
  return shape == TraceShape::kPai ? "pai" : "helios";
}

Cluster make_cluster(const ClusterOptions& options) {
  Cluster cluster;
  const int hosts = std::max(1, (options.gpus + options.gpus_per_host - 1) / options.gpus_per_host);
  Machine cpu;
  cpu.device.name = "devices/cpu";
  cpu.device.model = "CPU";
  cpu.device.cores = hosts * options.cores_per_host;
  cpu.device.slots = cpu.device.cores;
  cpu.device.memory_bytes = hosts * options.memory_per_host;
  cluster.machines.push_back(cpu);
  std::map<std::string, int> groups;
  std::vector<double> given(options.models.size(), 0);
  for (int host = 0; host < hosts; ++host) {
    // The model that is furthest behind its share is next.
    size_t next = 0;
    for (size_t i = 1; i < given.size(); ++i) {
      if (given[i] / options.models[i].share < given[next] / options.models[next].share) next = i;
    }
    given[next] += 1;
    const GpuModel& model = options.models[next];
    for (int i = 0; i < options.gpus_per_host && cluster.gpu_count < options.gpus; ++i) {
      Machine gpu;
      const std::string number = std::to_string(cluster.gpu_count++);
      gpu.device.name = "devices/gpu-" + number;
      gpu.device.kind = DeviceKind::kGpu;
      gpu.device.model = model.name;
      if (options.gangs_within_host) gpu.device.model += " of host " + std::to_string(host);
      gpu.device.uuid = "GPU-" + number;
      gpu.device.memory_bytes = model.memory_bytes;
      gpu.device.overhead_bytes = options.overhead_bytes;
      gpu.device.slots = options.gpu_slots;
      gpu.speed = model.speed;
      gpu.host = host;
      gpu.group = groups.emplace(gpu.device.model, std::ssize(groups) + 1).first->second;
      cluster.gpu_speed += gpu.speed;
      cluster.machines.push_back(std::move(gpu));
    }
  }
  cluster.group_count = static_cast<int>(groups.size()) + 1;
  return cluster;
}

std::vector<TraceJob> make_trace(const TraceOptions& options, const Cluster& cluster) {
  return Maker(options, cluster).make(std::max(1.0, cluster.gpu_speed));
}

TraceFigures figures_of(const std::vector<TraceJob>& jobs) {
  TraceFigures f;
  std::vector<double> seconds;
  std::map<int, double> by_owner;
  double time = 0;
  for (const TraceJob& job : jobs) {
    ++by_owner[job.owner];
    if (job.wish == DeviceWish::kCpu) continue;
    const double s = static_cast<double>(job.work_us) * job.ends_at / kSecondUs;
    seconds.push_back(s);
    time += s * job.gpus;
    f.mean_s += s;
    if (job.gpus == 1) f.single_share += 1, f.single_time_share += s;
    if (job.gpus >= 8) f.large_share += 1, f.large_time_share += s * job.gpus;
  }
  if (seconds.empty()) return f;
  const auto count = static_cast<double>(seconds.size());
  std::ranges::sort(seconds);
  f.median_s = seconds[seconds.size() / 2];
  f.p90_s = seconds[seconds.size() * 9 / 10];
  f.mean_s /= count;
  f.single_share /= count;
  f.large_share /= count;
  f.single_time_share /= time;
  f.large_time_share /= time;
  std::vector<double> owners;
  for (const auto& [owner, submitted] : by_owner) owners.push_back(submitted);
  std::ranges::sort(owners, std::greater());
  const size_t top = std::max<size_t>(1, owners.size() / 20);
  f.top_owner_share =
      std::accumulate(owners.begin(), owners.begin() + static_cast<long>(top), 0.0) /
      static_cast<double>(jobs.size());
  f.span_hours = static_cast<double>(jobs.back().arrive_us - jobs.front().arrive_us) / kHourUs;
  return f;
}

}  // namespace trainyard::sim
