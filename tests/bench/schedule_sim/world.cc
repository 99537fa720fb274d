#include "tests/bench/schedule_sim/world.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainyard::sim {

World::World(Cluster cluster, std::vector<TraceJob> jobs, Physics physics)
    : cluster_(std::move(cluster)),
      jobs_(std::move(jobs)),
      physics_(physics),
      states_(jobs_.size()),
      devices_(cluster_.machines.size()) {}

int64_t World::forecast_us(int id, double speed) const {
  const JobState& s = state(id);
  const double factor = s.attempts > 0 ? job(id).measured_factor : job(id).forecast_factor;
  const double rest = static_cast<double>(job(id).work_us) - s.saved_us;
  return physics_.start_us + static_cast<int64_t>(std::ceil(rest * factor / speed));
}

int64_t World::forecast_end_us(int id) const {
  const JobState& s = state(id);
  if (s.phase == Phase::kStopping) return s.attempt_us + physics_.stop_us;
  if (s.phase == Phase::kStarting) {
    const double speed = speed_on(id, machine(s.devices.front()));
    return s.attempt_us + forecast_us(id, speed);
  }
  const double rest = static_cast<double>(job(id).work_us) - s.done_us;
  const double left = s.rate > 0 ? rest * job(id).measured_factor / s.rate : 0;
  return std::max(now_us_ + 1, s.rate_us + static_cast<int64_t>(std::ceil(left)));
}

int64_t World::true_end_us(int id) const {
  const JobState& s = state(id);
  const double work = static_cast<double>(job(id).work_us) * job(id).ends_at;
  const double left = std::max(0.0, work - s.done_us) / s.rate;
  return s.rate_us + static_cast<int64_t>(std::ceil(left));
}

void World::arrive(int id) {
  mut(id).phase = Phase::kWaiting;
  mut(id).wait_since_us = now_us_;
  waiting_.insert(id);
}

void World::withdraw(int id) {
  mut(id).phase = Phase::kWithdrawn;
  mut(id).end_us = now_us_;
  waiting_.erase(id);
}

bool World::kind_allowed(int id, DeviceKind kind) const {
  const DeviceWish wish = job(id).wish;
  if (wish == DeviceWish::kCpu) return kind == DeviceKind::kCpu;
  if (wish == DeviceWish::kGpu) return kind == DeviceKind::kGpu;
  const auto& before = state(id).kind_before;
  // Another kind of device gives other bits, so it is used only if no device of the first kind is
  // left.
  return !before || *before == kind || !kind_usable(*before);
}

bool World::kind_usable(DeviceKind kind) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (machines()[i].device.kind == kind && !devices_[i].failed) return true;
  }
  return false;
}

bool World::fits(int id, int at) const { return fits_at(id, at, now_us_); }

bool World::fits_at(int id, int at, int64_t time_us) const {
  const Machine& m = machine(at);
  const DeviceState& d = device(at);
  const TraceJob& j = job(id);
  if (d.failed) return false;
  int64_t bytes = d.others_bytes + d.planned_bytes;
  int32_t cores = d.cores;
  auto left = static_cast<int32_t>(d.jobs.size());
  bool shut = false;
  if (time_us > now_us_ || m.device.kind == DeviceKind::kGpu) {
    for (const int other : d.jobs) {
      if (time_us > now_us_ && forecast_end_us(other) <= time_us) {
        bytes -= job(other).bytes + m.device.overhead_bytes;
        cores -= job(other).cores;
        --left;
      } else {
        shut = shut || job(other).exclusive;
      }
    }
  } else if (!d.jobs.empty()) {
    shut = job(d.jobs.front()).exclusive;  // an exclusive job is alone on its device
  }
  if (left >= m.device.slots || shut) return false;
  if (bytes + j.bytes + m.device.overhead_bytes > m.device.memory_bytes) return false;
  if (left == 0) return true;
  return !j.exclusive && (m.device.kind == DeviceKind::kGpu || cores + j.cores <= m.device.cores);
}

bool World::would_hold(int id) const {
  // free devices of each group
  std::vector<int> room(static_cast<size_t>(cluster_.group_count), 0);
  const TraceJob& j = job(id);
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Machine& m = machines()[i];
    if (devices_[i].failed || !kind_allowed(id, m.device.kind)) continue;
    const int64_t bytes = devices_[i].others_bytes + j.bytes + m.device.overhead_bytes;
    if (bytes > m.device.memory_bytes) continue;
    if (++room[static_cast<size_t>(m.group)] >= j.gpus) return true;
  }
  return false;
}

void World::violate(std::string invariant, std::string text) {
  if (++violation_counts_[invariant] > kReportedMax) return;
  violations_.push_back({std::move(invariant), std::move(text), event_, now_us_});
}

void World::check_start(int id, const std::vector<int>& devices) {
  const TraceJob& j = job(id);
  const JobState& s = state(id);
  const std::string who = "job " + std::to_string(id);
  if (s.phase != Phase::kWaiting) violate("waiting", who + " is started but does not wait");
  if (s.retry_us > now_us_) violate("resting", who + " is started while it rests");
  std::vector<int> distinct = devices;
  std::ranges::sort(distinct);
  const auto repeated = std::ranges::unique(distinct);
  if (std::ssize(devices) != j.gpus || !repeated.empty()) {
    violate("gang", who + " of " + std::to_string(j.gpus) + " devices gets " +
                        std::to_string(devices.size()));
  }
  for (const int at : devices) {
    const Machine& m = machine(at);
    const DeviceState& d = device(at);
    const std::string where = who + " on " + m.device.name;
    if (m.group != machine(devices.front()).group) violate("gang", where + ": of another model");
    if (!kind_allowed(id, m.device.kind)) violate("kind", where + ": not what it asked for");
    if (d.failed) violate("usable", where + ": it has failed");
    if (std::ssize(d.jobs) >= m.device.slots) violate("slots", where + ": all are taken");
    const int64_t bytes = d.planned_bytes + d.others_bytes + j.bytes + m.device.overhead_bytes;
    if (bytes > m.device.memory_bytes) {
      violate("bytes", where + ": " + std::to_string(bytes) + " of " +
                           std::to_string(m.device.memory_bytes));
    }
    const bool alone = d.jobs.empty();
    const bool shut = std::ranges::any_of(d.jobs, [&](int o) { return job(o).exclusive; });
    if (!alone && (j.exclusive || shut)) violate("exclusive", where + ": it is shared");
    if (m.device.kind == DeviceKind::kCpu && !alone && d.cores + j.cores > m.device.cores) {
      violate("cores", where + ": " + std::to_string(d.cores + j.cores) + " of " +
                           std::to_string(m.device.cores));
    }
  }
}

void World::start(int id, const std::vector<int>& devices) {
  check_start(id, devices);
  JobState& s = mut(id);
  waiting_.erase(id);
  s.phase = Phase::kStarting;
  s.devices = devices;
  s.waited_us += now_us_ - s.wait_since_us;
  if (s.first_start_us < 0) s.first_start_us = now_us_;
  s.attempt_us = s.saved_time_us = s.rate_us = now_us_;
  s.done_us = s.saved_us;
  s.rate = 0;
  s.preempted_for = -1;
  ++s.version;
  s.kind_before = machine(devices.front()).device.kind;
  for (const int at : devices) {
    DeviceState& d = dev(at);
    const bool gpu = machine(at).device.kind == DeviceKind::kGpu;
    placed_gpus_ += gpu;
    busy_gpus_ += gpu && d.jobs.empty();
    d.jobs.push_back(id);
    d.planned_bytes += job(id).bytes + machine(at).device.overhead_bytes;
    d.cores += job(id).cores;
  }
}

void World::settle(int id) {
  JobState& s = mut(id);
  if (s.phase != Phase::kRunning) return;
  s.done_us += s.rate * static_cast<double>(now_us_ - s.rate_us);
  s.rate_us = now_us_;
  // The newest checkpoint is at most one interval old. The work since then was done at the current
  // rate.
  const int64_t since = now_us_ - s.saved_time_us;
  const int64_t whole = since / physics_.checkpoint_us * physics_.checkpoint_us;
  if (whole > 0) {
    s.saved_time_us += whole;
    s.saved_us =
        std::max(s.saved_us, s.done_us - s.rate * static_cast<double>(now_us_ - s.saved_time_us));
  }
}

void World::set_rate(int id, double rate) {
  JobState& s = mut(id);
  if (*s.kind_before == DeviceKind::kGpu) work_rate_ += (rate - s.rate) * job(id).gpus;
  s.rate = rate;
}

void World::update_rates(const std::vector<int>& devices) {
  for (const int at : devices) {
    const bool shared = machine(at).device.kind == DeviceKind::kGpu;
    if (!shared) continue;  // on the CPU each job has its own cores
    for (const int id : device(at).jobs) {
      if (state(id).phase != Phase::kRunning) continue;
      double rate = std::numeric_limits<double>::max();
      for (const int on : state(id).devices) {
        double turns = 1;
        if (physics_.interference) {
          double demand = 0;
          for (const int other : device(on).jobs) {
            if (state(other).phase == Phase::kRunning) demand += job(other).demand;
          }
          turns = std::max(1.0, demand);
        }
        rate = std::min(rate, machine(on).speed / turns);
      }
      if (rate == state(id).rate) continue;
      settle(id);
      set_rate(id, rate);
      touched_.push_back(id);
    }
  }
}

void World::run(int id) {
  JobState& s = mut(id);
  s.phase = Phase::kRunning;
  s.rate_us = s.saved_time_us = now_us_;
  ++s.attempts;
  lost_gpu_us_ += s.attempts == 1 || s.kind_before != DeviceKind::kGpu
                      ? 0.0
                      : static_cast<double>(physics_.start_us) * job(id).gpus;
  if (*s.kind_before == DeviceKind::kCpu) {
    set_rate(id, 1 / job(id).cpu_slowdown);
    touched_.push_back(id);
    return;
  }
  update_rates(s.devices);
}

void World::preempt(int victim, int beneficiary, int64_t least_run_us) {
  JobState& v = mut(victim);
  const std::string who = "job " + std::to_string(victim);
  const bool placed = v.phase == Phase::kStarting || v.phase == Phase::kRunning;
  if (!placed) return violate("preemption", who + " is not there to be preempted");
  if (job(victim).priority >= job(beneficiary).priority) {
    violate("preemption", who + " is preempted for a job that is not of higher priority");
  }
  if (state(beneficiary).phase != Phase::kWaiting) {
    violate("preemption", who + " is preempted for one that does not wait");
  }
  if (now_us_ - v.attempt_us < least_run_us) {
    violate("preemption", who + " is preempted after " +
                              std::to_string((now_us_ - v.attempt_us) / kSecondUs) + " s");
  }
  settle(victim);
  v.saved_us = std::max(v.saved_us, v.done_us);  // the job writes a checkpoint before it leaves
  v.phase = Phase::kStopping;
  set_rate(victim, 0);
  v.attempt_us = now_us_;
  v.preempted_for = beneficiary;
  ++v.preemptions;
  ++v.version;
  if (*v.kind_before == DeviceKind::kGpu) {
    lost_gpu_us_ += static_cast<double>(physics_.stop_us) * job(victim).gpus;
  }
  update_rates(v.devices);
}

void World::leave_devices(int id) {
  JobState& s = mut(id);
  std::vector<int> devices;
  devices.swap(s.devices);
  for (const int at : devices) {
    DeviceState& d = dev(at);
    const bool gpu = machine(at).device.kind == DeviceKind::kGpu;
    d.jobs.erase(std::ranges::find(d.jobs, id));
    placed_gpus_ -= gpu;
    busy_gpus_ -= gpu && d.jobs.empty();
    d.planned_bytes -= job(id).bytes + machine(at).device.overhead_bytes;
    d.cores -= job(id).cores;
  }
  ++s.version;
  update_rates(devices);
}

void World::end(int id) {
  settle(id);
  set_rate(id, 0);
  mut(id).phase = Phase::kDone;
  mut(id).end_us = now_us_;
  leave_devices(id);
}

void World::requeue(int id, bool saved, int64_t retry_us) {
  settle(id);
  set_rate(id, 0);
  JobState& s = mut(id);
  if (!saved) {
    if (*s.kind_before == DeviceKind::kGpu) {
      const double speed = machine(s.devices.front()).speed;
      lost_gpu_us_ += std::max(0.0, s.done_us - s.saved_us) / speed * job(id).gpus;
    }
    ++s.losses;
  }
  s.phase = Phase::kWaiting;
  s.wait_since_us = now_us_;
  s.retry_us = retry_us;
  s.done_us = s.saved_us;
  waiting_.insert(id);
  leave_devices(id);
}

void World::set_failed(int at, bool failed) { dev(at).failed = failed; }
void World::set_others(int at, int64_t bytes) { dev(at).others_bytes = bytes; }

std::vector<int> World::take_touched() {
  std::vector<int> touched;
  touched.swap(touched_);
  return touched;
}

}  // namespace trainyard::sim
