// The daemon's own scheduler in a simulation: Queue, Fleet and Shares get from the world what the
// dispatcher passes to them in the daemon.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "server/scheduler/fleet.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/shares.h"
#include "tests/bench/schedule_sim/policy.h"

namespace trainyard::sim {
namespace {

/// 80 % of the forecasts are within their range: the 10th and 90th percentiles of a normal
/// distribution.
constexpr double kRangeSigmas = 1.2816;

class Trainyard final : public SchedulingPolicy {
 public:
  Trainyard(const World& world, TrainyardOptions options)
      : options_(options), shares_(options.half_life_us) {
    policy_.preemption =
        options.preemption ? server::Preemption::kPriority : server::Preemption::kOff;
    policy_.preempt_after_us = options.preempt_after_us;
    policy_.half_life_us = options.half_life_us;
    policy_.reserved_idle_max_us = options.reserved_idle_max_us;
    double gpus = 0;
    for (const Machine& m : world.machines()) {
      by_name_.emplace(m.device.name, static_cast<int>(devices_.devices.size()));
      devices_.devices.push_back(m.device);
      if (m.device.kind != DeviceKind::kGpu) continue;
      slowest_ = gpus == 0 ? m.speed : std::min(slowest_, m.speed);
      fastest_ = std::max(fastest_, m.speed);
      usual_ += m.speed;
      ++gpus;
    }
    usual_ /= std::max(1.0, gpus);
    fleet_.set_devices(devices_);
  }

  std::string_view name() const override { return "Trainyard"; }
  int64_t least_run_us() const override { return options_.preempt_after_us; }

  void job_changed(const World& world, int id) override {
    const JobState& s = world.state(id);
    const std::string uid = uid_of(id);
    if (s.phase == Phase::kWaiting) {
      queue_.put(waiting(world, id));
    } else {
      queue_.remove(uid);
    }
    const bool had = fleet_.find(uid) != nullptr;
    const bool has = !s.devices.empty();
    if (has) {
      fleet_.place(placed(world, id));
    } else {
      fleet_.leave(uid, world.now_us());
    }
    if (had != has) {
      const int count = world.job(id).gpus;
      shares_.change(owner_of(world, id), has ? count : -count, world.now_us());
    }
  }

  void device_changed(const World& world, int device) override {
    Device& d = devices_.devices[static_cast<size_t>(device)];
    const DeviceState& state = world.device(device);
    d.schedulable = !state.failed;
    d.health = state.failed ? DeviceHealth::kQuarantined : DeviceHealth::kHealthy;
    d.others_bytes = state.others_bytes;
    d.memory_used_bytes = state.others_bytes + state.planned_bytes;
    fleet_.set_devices(devices_);
  }

  Plan decide(const World& world) override {
    server::Decisions decisions = server::decide(queue_, fleet_, shares_, policy_, world.now_us());
    Plan plan;
    plan.wake_us = decisions.wake_time_us;
    plan.more = decisions.more;
    for (const server::StartDecision& start : decisions.starts) {
      std::vector<int> devices;
      for (const std::string& name : start.devices) devices.push_back(by_name_.at(name));
      plan.starts.push_back({id_of(start.uid), std::move(devices)});
    }
    for (const server::PreemptDecision& preempt : decisions.preempts) {
      plan.preempts.push_back({id_of(preempt.uid), id_of(preempt.for_uid)});
    }
    return plan;
  }

 private:
  static std::string uid_of(int id) { return "job-" + std::to_string(id); }
  static int id_of(std::string_view uid) {
    int id = -1;
    std::from_chars(uid.data() + 4, uid.data() + uid.size(), id);
    return id;
  }
  static std::string owner_of(const World& world, int id) {
    return "owner-" + std::to_string(world.job(id).owner);
  }
  /// Returns the range stated by forecasts with an error of `spread`, for the GPUs' speeds.
  static server::Range range(double low, double likely, double high, double spread) {
    const double factor = std::exp(kRangeSigmas * spread);
    return {static_cast<int64_t>(low / factor), static_cast<int64_t>(likely),
            static_cast<int64_t>(std::ceil(high * factor))};
  }
  double spread_of(const World& world, int id) const {
    const double before = options_.forecast_spread;
    return world.state(id).attempts > 0 ? std::min(options_.measured_spread, before) : before;
  }

  server::WaitingJob waiting(const World& world, int id) const {
    const TraceJob& job = world.job(id);
    const JobState& s = world.state(id);
    server::WaitingJob w;
    w.uid = w.name = uid_of(id);
    w.owner = owner_of(world, id);
    w.order = id + 1;
    w.priority = job.priority;
    w.asked.wish = job.wish;
    w.asked.gpus = job.gpus;
    w.asked.kind_before = s.kind_before;
    w.asked.exclusive = job.exclusive;
    w.asked.threads = job.cores;
    const auto on = [&](double speed) { return static_cast<double>(world.forecast_us(id, speed)); };
    w.workers_lost = s.losses;
    w.retry_time_us = s.retry_us;
    w.wait_since_us = s.wait_since_us;
    const double spread = spread_of(world, id);
    if (job.wish != DeviceWish::kGpu) {
      const double cpu = on(1 / job.cpu_slowdown);
      w.on_cpu = {job.bytes, range(cpu, cpu, cpu, spread)};
    }
    if (job.wish != DeviceWish::kCpu && fastest_ > 0) {
      w.on_gpu = {job.bytes, range(on(fastest_), on(usual_), on(slowest_), spread)};
    }
    if (!job.is_forecast) w.on_cpu.rest = w.on_gpu.rest = {};
    return w;
  }

  server::PlacedJob placed(const World& world, int id) const {
    const TraceJob& job = world.job(id);
    const JobState& s = world.state(id);
    server::PlacedJob p;
    p.uid = p.name = uid_of(id);
    p.owner = owner_of(world, id);
    for (const int device : s.devices) p.devices.push_back(world.machine(device).device.name);
    p.priority = job.priority;
    p.bytes = job.bytes;
    p.threads = job.cores;
    p.exclusive = job.exclusive;
    p.running = s.phase != Phase::kStarting;
    p.stopping = s.phase == Phase::kStopping;
    p.start_time_us = s.attempt_us;
    p.saved_time_us = s.saved_time_us;
    if (!job.is_forecast) return p;
    const auto left = static_cast<double>(world.forecast_end_us(id) - world.now_us());
    const double spread = p.stopping ? 0 : spread_of(world, id);
    const server::Range rest = range(left, left, left, spread);
    p.end = {world.now_us() + rest.low_us, world.now_us() + rest.likely_us,
             world.now_us() + rest.high_us};
    return p;
  }

  const TrainyardOptions options_;
  server::Policy policy_;
  Devices devices_;
  std::unordered_map<std::string, int> by_name_;
  double slowest_ = 0, fastest_ = 0, usual_ = 0;
  server::Queue queue_;
  server::Fleet fleet_;
  server::Shares shares_;
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_trainyard(const World& world, TrainyardOptions options) {
  return std::make_unique<Trainyard>(world, options);
}

}  // namespace trainyard::sim
