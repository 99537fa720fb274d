// Measures how long one scheduling decision takes with a full fleet and a long queue. Between two
// decisions something changes, as in a daemon: a job ends and others start, or one is submitted.
//
//   decide_bench [--gpus N] [--jobs N] [--owners N] [--decisions N] [--preemption] [--fair]
//
// Also measures the forecast of when the jobs of a long queue will start.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/projection.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/shares.h"

namespace trainyard::server {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMinuteUs = 60'000'000;

struct Setting {
  int64_t gpus = 10'000, jobs = 100'000, owners = 100, decisions = 2'000;
  bool preemption = false, fair = false;
};

/// Returns the CPU time of this thread, in microseconds.
double cpu_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

class Bench {
 public:
  explicit Bench(const Setting& setting)
      : setting_(setting), shares_(setting.fair ? 24 * 60 * kMinuteUs : 0) {
    Devices devices;
    for (int64_t i = 0; i < setting.gpus; ++i) {
      Device& d = devices.devices.emplace_back();
      d.name = "devices/gpu-" + std::to_string(i);
      d.kind = DeviceKind::kGpu;
      d.model = i % 4 == 0 ? "B" : "A";
      d.memory_bytes = (i % 4 == 0 ? 40 : 80) * kGiB;
      d.overhead_bytes = kGiB;
      d.slots = 8;
    }
    fleet_.set_devices(std::move(devices));
    if (setting.preemption) policy_.preemption = Preemption::kPriority;
    policy_.half_life_us = setting.fair ? 24 * 60 * kMinuteUs : 0;
    for (int64_t i = 0; i < setting.jobs; ++i) submit();
    while (true) {  // fill the fleet
      const Decisions d = decide(queue_, fleet_, shares_, policy_, now_us_);
      carry_out(d);
      if (!d.more) break;
    }
    while (queue_.size() < static_cast<size_t>(setting.jobs)) submit();
  }

  void run() {
    std::vector<double> took;
    int64_t started = 0, stopped = 0;
    for (int64_t i = 0; i < setting_.decisions; ++i) {
      now_us_ += 100'000;
      if (i % 2 == 0) {
        end_one();
      } else {
        submit();
      }
      const double begin = cpu_us();
      const Decisions d = decide(queue_, fleet_, shares_, policy_, now_us_);
      took.push_back(cpu_us() - begin);
      started += std::ssize(d.starts);
      stopped += std::ssize(d.preempts);
      carry_out(d);
    }
    std::ranges::sort(took);
    const auto at = [&](double share) {
      return took[static_cast<size_t>(share * static_cast<double>(took.size() - 1))] / 1e3;
    };
    std::printf("gpus %ld jobs %zu lines %zu running %zu preemption %d fair %d: ", setting_.gpus,
                queue_.size(), queue_.lines().size(), fleet_.placed_count(), setting_.preemption,
                setting_.fair);
    std::printf("decide p50 %.3f ms p99 %.3f ms max %.3f ms, %ld started, %ld stopped\n", at(0.5),
                at(0.99), at(1), started, stopped);
    const double begin = cpu_us();
    const size_t projected = project(queue_, fleet_, shares_, now_us_, 100).size();
    std::printf("project %zu jobs %.3f ms\n", projected, (cpu_us() - begin) / 1e3);
  }

 private:
  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void submit() {
    WaitingJob job;
    job.order = ++order_;
    job.uid = job.name = "job-" + std::to_string(order_);
    job.owner = "owner-" + std::to_string(pick(setting_.owners));
    job.priority = static_cast<int32_t>(pick(20) == 0 ? 5 : 0);
    job.asked.wish = DeviceWish::kGpu;
    if (pick(20) == 0) job.asked.gpus = static_cast<int32_t>(2 << pick(3));
    // Sizes and times have heavy-tailed distributions.
    job.on_gpu.bytes = kGiB << pick(6);
    job.on_gpu.bytes += pick(job.on_gpu.bytes / 8);
    const int64_t us = kMinuteUs << pick(11);
    if (pick(10) > 0) job.on_gpu.rest = {us / 2, us, us * 2};
    queue_.put(std::move(job));
  }
  void end_one() {
    const std::string uid = running_[static_cast<size_t>(pick(std::ssize(running_)))];
    end(uid);
  }
  void end(const std::string& uid) {
    const PlacedJob* job = fleet_.find(uid);
    shares_.change(job->owner, -std::ssize(job->devices), now_us_);
    fleet_.remove(uid);
    std::erase(running_, uid);
  }
  void carry_out(const Decisions& d) {
    for (const PreemptDecision& p : d.preempts) end(p.uid);
    for (const StartDecision& s : d.starts) {
      const WaitingJob& job = *queue_.find(s.uid);
      PlacedJob placed;
      placed.uid = placed.name = s.uid;
      placed.owner = job.owner;
      placed.devices = s.devices;
      placed.priority = job.priority;
      placed.bytes = job.on_gpu.bytes;
      placed.running = true;
      placed.start_time_us = placed.saved_time_us = now_us_;
      if (const Range& rest = job.on_gpu.rest; rest.known()) {
        placed.end = {now_us_ + rest.low_us, now_us_ + rest.likely_us, now_us_ + rest.high_us};
      }
      shares_.change(job.owner, std::ssize(s.devices), now_us_);
      running_.push_back(s.uid);
      fleet_.place(std::move(placed));
      queue_.remove(s.uid);
    }
  }

  const Setting setting_;
  std::mt19937_64 random_{1};
  int64_t now_us_ = 1'000'000'000, order_ = 0;
  Queue queue_;
  Fleet fleet_;
  Shares shares_;
  Policy policy_;
  std::vector<std::string> running_;
};

/// Measures project() with the most that 'queue' requests: 2,000 jobs, on 256 GPUs with 8 jobs
/// each.
void bench_projection() {
  constexpr int kGpus = 256, kSlots = 8, kJobs = 2000, kTimes = 5;
  constexpr int64_t kNowUs = 1'000'000'000;
  std::mt19937_64 random(1);
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto some_time = [&] {
    const int64_t us = kMinuteUs * (1 + pick(600));
    return Range{us / 2, us, us * 2};
  };
  Fleet fleet;
  Devices devices;
  for (int i = 0; i < kGpus; ++i) {
    Device& d = devices.devices.emplace_back();
    d.name = "devices/gpu-" + std::to_string(i);
    d.kind = DeviceKind::kGpu;
    d.model = "A";
    d.memory_bytes = 80 * kGiB;
    d.overhead_bytes = kGiB;
    d.slots = kSlots;
  }
  fleet.set_devices(std::move(devices));
  for (int i = 0; i < kGpus * kSlots; ++i) {
    PlacedJob job;
    job.uid = job.name = "running-" + std::to_string(i);
    job.devices = {"devices/gpu-" + std::to_string(i / kSlots)};
    job.bytes = (1 + pick(9)) * kGiB;
    job.running = true;
    const Range rest = some_time();
    job.end = {kNowUs + rest.low_us, kNowUs + rest.likely_us, kNowUs + rest.high_us};
    fleet.place(std::move(job));
  }
  Queue queue;
  for (int i = 0; i < kJobs; ++i) {
    WaitingJob job;
    job.order = i;
    job.uid = job.name = "job-" + std::to_string(i);
    job.owner = "owner-" + std::to_string(pick(20));
    job.asked.wish = DeviceWish::kGpu;
    if (pick(20) == 0) job.asked.gpus = static_cast<int32_t>(2 << pick(3));
    job.on_gpu = {kGiB << pick(6), some_time()};
    queue.put(std::move(job));
  }
  const Shares shares;
  double least_us = 0, all_us = 0;
  for (int i = 0; i < kTimes; ++i) {
    const double begin = cpu_us();
    const std::vector<Projected> projected = project(queue, fleet, shares, kNowUs, kJobs);
    const double took = cpu_us() - begin;
    if (projected.size() != kJobs || !projected.back().start.known()) std::abort();
    least_us = i == 0 ? took : std::min(least_us, took);
    all_us += took;
  }
  std::printf("project %d jobs on %d GPUs with %d jobs each: %.0f us, at best %.0f us\n", kJobs,
              kGpus, kSlots, all_us / kTimes, least_us);
}

int run(int argc, char** argv) {
  Setting setting;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&](const char* name, int64_t& target) {
      if (std::strcmp(argv[i], name) != 0 || i + 1 == argc) return false;
      target = std::max(1L, std::atol(argv[++i]));
      return true;
    };
    if (number("--gpus", setting.gpus) || number("--jobs", setting.jobs) ||
        number("--owners", setting.owners) || number("--decisions", setting.decisions)) {
      continue;
    }
    if (std::strcmp(argv[i], "--preemption") == 0) {
      setting.preemption = true;
    } else if (std::strcmp(argv[i], "--fair") == 0) {
      setting.fair = true;
    } else {
      std::fprintf(stderr,
                   "usage: decide_bench [--gpus N] [--jobs N] [--owners N]"
                   " [--decisions N] [--preemption] [--fair]\n");
      return 2;
    }
  }
  Bench(setting).run();
  bench_projection();
  return 0;
}

}  // namespace
}  // namespace trainyard::server

int main(int argc, char** argv) { return trainyard::server::run(argc, argv); }
