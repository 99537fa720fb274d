// Runs thousands of random events on a simulated clock, from a seed that is printed on failure:
// jobs arrive, run for a time within their forecast, end, lose their workers; devices come and go;
// outside processes take memory. After each decision, invariants are checked against an independent
// statement of the rules, not with decide()'s own code.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/server/sched_support.h"

namespace trainyard::server {
namespace {

class Simulation {
 public:
  struct Options {
    bool changes = true;        // priorities, devices and others' memory change; workers are lost
    bool all_forecast = false;  // every job has a correct forecast
    // Jobs belong to projects that may use only some devices: other GPUs for each if nothing
    // changes, otherwise any.
    bool projects = false;
  };

  Simulation(unsigned seed, Options options) : options_(options), random_(seed) {
    Device cpu;
    cpu.name = "devices/cpu";
    cpu.slots = 1 + pick(4);
    cpu.cores = 2 + pick(6);
    cpu.memory_bytes = 16 * kGiB;
    scene_.inventory.devices.push_back(cpu);
    const int gpus = 1 + pick(6);
    for (int i = 0; i < gpus; ++i) {
      Device gpu;
      gpu.name = "devices/gpu-" + std::to_string(i);
      gpu.kind = DeviceKind::kGpu;
      // With two models, a job that fits both may be promised one model and get the other.
      gpu.model = options.changes && pick(3) == 0 ? "B" : "A";
      gpu.slots = 1 + pick(4);
      gpu.memory_bytes = (gpu.model == "A" ? 40 : 24) * kGiB;
      gpu.overhead_bytes = kGiB;
      scene_.inventory.devices.push_back(gpu);
    }
    if (pick(2) == 0 && options.changes) scene_.policy.preemption = Preemption::kPriority;
    scene_.policy.preempt_after_us = 2 * kMinuteUs;
    if (options.projects) change_projects();
    fleet_.set_devices(scene_.inventory);
  }

  void step() {
    now_us_ += pick(kMinuteUs);
    for (int i = pick(3); i > 0; --i) submit();
    end_some();
    if (options_.changes && pick(10) == 0) change_device();
    if (options_.changes && options_.projects && pick(12) == 0) change_projects();
    if (options_.changes && pick(6) == 0) lose_one();
    if (options_.changes && pick(6) == 0) change_priority();
    run_pass();
  }

  /// Lets all jobs that can run do so, while no new jobs arrive.
  void drain() {
    for (Device& d : scene_.inventory.devices) {
      d.schedulable = true;
      d.others_bytes = 0;
    }
    fleet_.set_devices(scene_.inventory);
    const auto could_start = [this](const WaitingJob& job) { return could_ever(job); };
    for (int i = 0; i < 10'000; ++i) {
      if (scene_.placed.empty() && std::ranges::none_of(scene_.waiting, could_start)) break;
      now_us_ += kMinuteUs;
      end_some();
      run_pass();
    }
    for (const WaitingJob& job : scene_.waiting) {
      EXPECT_FALSE(could_ever(job)) << job.uid << " starved";
    }
  }
  int reservations_kept() const { return kept_; }
  int started() const { return started_; }
  int preempted() const { return preempted_; }

 private:
  int pick(int64_t n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void submit() {
    WaitingJob job;
    job.order = ++order_;
    job.uid = "job-" + std::to_string(order_);
    if (options_.projects)
      job.project = kProjects[static_cast<size_t>(pick(options_.changes ? 3 : 2))];
    job.name = job.project + "-" + job.uid;
    job.priority = options_.changes ? pick(3) - 1 : 0;
    job.asked.wish = static_cast<DeviceWish>(1 + pick(3));
    job.asked.threads = 1 + pick(3);
    job.asked.exclusive = pick(8) == 0;
    if (job.asked.wish == DeviceWish::kGpu && pick(3) == 0) job.asked.gpus = 2 + pick(2);
    const int64_t bytes = int64_t{1 + pick(1 << 20)} * (pick(4) == 0 ? 20 : 6) * 1024;
    job.on_cpu.bytes = job.on_gpu.bytes = bytes;
    if (options_.all_forecast || pick(3) > 0) {
      const int64_t us = (1 + pick(20)) * kMinuteUs;
      job.on_cpu.rest = job.on_gpu.rest = {us / 2, us, us * 2};
    }
    put(std::move(job));
  }
  void put(WaitingJob job) {
    job.wait_since_us = now_us_;
    jobs_[job.uid] = job;
    queue_.put(job);
    scene_.waiting.push_back(std::move(job));
  }
  WaitingJob take_out(const std::string& uid) {
    const auto job = std::ranges::find(scene_.waiting, uid, &WaitingJob::uid);
    WaitingJob copy = *job;
    queue_.remove(uid);
    scene_.waiting.erase(job);
    return copy;
  }
  PlacedJob take_off(size_t i) {
    PlacedJob job = scene_.placed[i];
    scene_.placed.erase(scene_.placed.begin() + static_cast<std::ptrdiff_t>(i));
    fleet_.leave(job.uid, now_us_);
    for (const std::string& device : job.devices) scene_.left_time_us[device] = now_us_;
    return job;
  }
  void end_some() {
    for (size_t i = scene_.placed.size(); i-- > 0;) {
      const PlacedJob& job = scene_.placed[i];
      if (!job.stopping && ends_[job.uid] > now_us_) continue;
      const bool stopped = job.stopping && ends_[job.uid] > now_us_;
      const PlacedJob gone = take_off(i);
      if (stopped) back(gone, 0);
    }
  }
  void lose_one() {
    if (scene_.placed.empty()) return;
    back(take_off(static_cast<size_t>(pick(std::ssize(scene_.placed)))), 1);
  }
  void back(const PlacedJob& placed, int lost) {
    WaitingJob job = jobs_[placed.uid];
    job.asked.kind_before =
        placed.devices[0] == "devices/cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
    job.workers_lost += lost;
    if (lost > 0) job.retry_time_us = now_us_ + pick(kMinuteUs);
    put(std::move(job));
  }
  void change_priority() {
    if (scene_.waiting.empty()) return;
    WaitingJob job =
        take_out(scene_.waiting[static_cast<size_t>(pick(std::ssize(scene_.waiting)))].uid);
    job.priority = pick(3) - 1;
    if (pick(3) > 0) put(std::move(job));  // one in three jobs is cancelled
  }
  void change_device() {
    auto& devices = scene_.inventory.devices;
    Device& d = devices[static_cast<size_t>(pick(std::ssize(devices)))];
    d.schedulable = pick(3) > 0;
    d.others_bytes = pick(3) == 0 ? pick(20) * kGiB : 0;
    fleet_.set_devices(scene_.inventory);
  }

  /// Gives projects new lists of devices; the last project never has one.
  void change_projects() {
    scene_.projects.clear();
    for (size_t p = 0; p + 1 < kProjects.size(); ++p) {
      if (options_.changes && pick(4) == 0) continue;  // no list: all devices
      Strings list;
      for (size_t i = 0; i < scene_.inventory.devices.size(); ++i) {
        const bool gpu = scene_.inventory.devices[i].kind == DeviceKind::kGpu;
        if (options_.changes ? pick(2) == 0 : !gpu || i % 2 == p) {
          list.push_back(scene_.inventory.devices[i].name);
        }
      }
      if (options_.changes && pick(5) == 0) list.emplace_back("gpu");
      if (!list.empty()) scene_.projects[kProjects[p]] = list;
    }
    fleet_.set_project_devices(scene_.projects);
  }
  /// Returns whether the project may use the device, by another reading of its list.
  bool allowed(const std::string& project, const Device& d) const {
    const auto list = scene_.projects.find(project);
    if (list == scene_.projects.end()) return true;
    for (const std::string& name : list->second) {
      if (name == d.name || (name == "gpu" && d.name != "devices/cpu")) return true;
    }
    return false;
  }

  bool could_ever(const WaitingJob& job) const {
    std::map<std::string, int> by_model;
    bool any_gpu = false;
    for (const Device& d : scene_.inventory.devices) {
      any_gpu |= d.kind == DeviceKind::kGpu && allowed(job.project, d);
    }
    for (const Device& d : scene_.inventory.devices) {
      const bool gpu = d.kind == DeviceKind::kGpu;
      if (!allowed(job.project, d)) continue;
      const bool may =
          job.asked.wish == DeviceWish::kAuto
              ? gpu ==
                    (job.asked.kind_before ? *job.asked.kind_before == DeviceKind::kGpu : any_gpu)
              : gpu == (job.asked.wish == DeviceWish::kGpu);
      if (may && job.on_gpu.bytes + d.overhead_bytes <= d.memory_bytes &&
          ++by_model[d.model] >= job.asked.gpus) {
        return true;
      }
    }
    return false;
  }

  void run_pass() {
    const Decided d = decide(queue_, fleet_, scene_, now_us_);
    ASSERT_EQ(d.text(), decide(queue_, fleet_, scene_, now_us_).text()) << "the fleet is as before";
    if (pick(10) == 0) {
      ASSERT_EQ(d.text(), decide(scene_, now_us_).text()) << "an index made anew says the same";
    }
    for (const PreemptDecision& p : d.preempts) stop(p);
    for (const StartDecision& s : d.starts) start(s);
    check_capacity();
    check_waits(d);
    if (!options_.changes) check_reservations(d);
  }
  void stop(const PreemptDecision& p) {
    const auto victim = std::ranges::find(scene_.placed, p.uid, &PlacedJob::uid);
    ASSERT_NE(victim, scene_.placed.end());
    EXPECT_EQ(scene_.policy.preemption, Preemption::kPriority);
    EXPECT_LT(victim->priority, jobs_[p.for_uid].priority);
    EXPECT_LE(victim->start_time_us + scene_.policy.preempt_after_us, now_us_);
    EXPECT_FALSE(victim->stopping);
    victim->stopping = true;
    fleet_.place(*victim);
    ++preempted_;
  }
  void start(const StartDecision& s) {
    EXPECT_FALSE(s.reason.empty() || s.message.empty());
    ASSERT_NE(std::ranges::find(scene_.waiting, s.uid, &WaitingJob::uid), scene_.waiting.end());
    const WaitingJob job = take_out(s.uid);
    EXPECT_LE(job.retry_time_us, now_us_) << "it rests";
    std::set<std::string> names(s.devices.begin(), s.devices.end());
    ASSERT_EQ(names.size(), static_cast<size_t>(job.asked.gpus)) << "all of them or none";
    std::set<std::string> models;
    for (const std::string& name : s.devices) {
      const Device& d = *std::ranges::find(scene_.inventory.devices, name, &Device::name);
      EXPECT_TRUE(d.schedulable);
      EXPECT_TRUE(allowed(job.project, d)) << job.name << " on " << d.name;
      if (job.asked.wish != DeviceWish::kAuto) {
        EXPECT_EQ(d.kind == DeviceKind::kGpu, job.asked.wish == DeviceWish::kGpu);
      }
      models.insert(d.model);
    }
    EXPECT_EQ(models.size(), 1u);
    PlacedJob placed;
    placed.uid = job.uid;
    placed.name = job.name;
    placed.project = job.project;
    placed.devices = s.devices;
    placed.priority = job.priority;
    placed.bytes = job.on_gpu.bytes;
    placed.threads = job.asked.threads;
    placed.exclusive = job.asked.exclusive;
    placed.running = true;
    placed.start_time_us = placed.saved_time_us = now_us_;
    int64_t us = (1 + pick(20)) * kMinuteUs;
    if (const Range& rest = job.on_gpu.rest; rest.known()) {
      placed.end = {now_us_ + rest.low_us, now_us_ + rest.likely_us, now_us_ + rest.high_us};
      us = rest.low_us + pick(rest.high_us - rest.low_us);
    }
    ends_[job.uid] = now_us_ + us;
    fleet_.place(placed);
    scene_.placed.push_back(std::move(placed));
    ++started_;
    if (const auto promised = promised_.find(job.uid); promised != promised_.end()) {
      EXPECT_LE(now_us_, promised->second + kMinuteUs) << job.uid << ": its start was moved";
      ++kept_;
      promised_.erase(promised);
    }
  }

  void check_capacity() {
    for (const Device& d : scene_.inventory.devices) {
      int64_t bytes = 0;
      int jobs = 0, threads = 0, exclusive = 0;
      // False if no job was just placed; the device may then have lost capacity since its jobs
      // started.
      bool fresh = false;
      for (const PlacedJob& p : scene_.placed) {
        if (std::ranges::find(p.devices, d.name) == p.devices.end()) continue;
        ++jobs;
        bytes += p.bytes + d.overhead_bytes;
        threads += std::min(p.threads, d.cores);
        exclusive += p.exclusive;
        fresh |= p.start_time_us == now_us_;
      }
      EXPECT_LE(jobs, d.slots) << d.name;
      EXPECT_LE(exclusive > 0 ? jobs : 1, 1) << d.name;
      if (d.kind == DeviceKind::kCpu) {
        EXPECT_LE(threads, d.cores);
      }
      if (fresh) {
        EXPECT_LE(bytes, d.memory_bytes - d.others_bytes) << d.name;
      }
    }
  }
  void check_waits(const Decided& d) {
    for (const WaitingJob& job : scene_.waiting) {
      const JobWait& wait = d.wait(job.uid);
      if (in_retry_pause(job, now_us_)) {
        EXPECT_EQ(wait.reason, "RETRY_BACKOFF");
        EXPECT_LE(d.wake_time_us.value(), job.retry_time_us);
        continue;
      }
      EXPECT_FALSE(wait.reason.empty()) << job.uid;
      for (const std::string& project : kProjects) {
        if (!options_.projects || project == job.project) continue;
        EXPECT_EQ(wait.message.find(project + "-job"), std::string::npos)
            << job.name << ": " << wait.message;
      }
      const bool highest = std::ranges::none_of(
          scene_.waiting, [&](const WaitingJob& other) { return other.priority > job.priority; });
      if (highest) {
        EXPECT_EQ(wait.message.find("higher priority"), std::string::npos) << wait.message;
      }
    }
  }
  void check_reservations(const Decided& d) {
    for (const Reservation& r : d.reservations) {
      if (r.time_us == kUnlimited) continue;
      // A job for either kind of device may use the other kind's free device before the jobs behind
      // it.
      if (std::ranges::any_of(scene_.waiting, [&](const WaitingJob& job) {
            return job.asked.wish == DeviceWish::kAuto && job.order <= r.order;
          })) {
        continue;
      }
      const auto [at, fresh] = promised_.try_emplace(r.uid, r.time_us);
      // Only overdue jobs could delay the start, and there are none.
      EXPECT_LE(r.time_us, at->second) << r.uid;
      at->second = std::min(at->second, r.time_us);
    }
  }

  inline static const Strings kProjects = {"vision", "speech", "free"};
  const Options options_;
  std::mt19937_64 random_;
  int64_t now_us_ = 1'000'000;
  int64_t order_ = 0;
  Scene scene_;
  Queue queue_;
  Fleet fleet_;
  std::map<std::string, WaitingJob> jobs_;
  std::map<std::string, int64_t> ends_;      // true end of each job
  std::map<std::string, int64_t> promised_;  // starts promised by reservations
  int kept_ = 0, started_ = 0, preempted_ = 0;
};

TEST(SchedSimulation, InvariantsHoldOverThousandsOfEvents) {
  int started = 0, preempted = 0;
  for (unsigned seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, {});
    for (int i = 0; i < 120 && !HasFailure(); ++i) simulation.step();
    if (!HasFailure()) simulation.drain();
    started += simulation.started();
    preempted += simulation.preempted();
  }
  EXPECT_GT(started, 200);
  EXPECT_GT(preempted, 5);
}

// Jobs use only the devices of their project, whatever the lists become while jobs wait and run,
// and no message names a job of another project. Once nothing changes any more, every job starts
// that its project's devices can run.
TEST(SchedSimulation, ProjectsKeepToTheirDevicesAndSeeNoOthersNames) {
  int started = 0;
  for (unsigned seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, {.projects = true});
    for (int i = 0; i < 120 && !HasFailure(); ++i) simulation.step();
    if (!HasFailure()) simulation.drain();
    started += simulation.started();
  }
  EXPECT_GT(started, 120);
}

TEST(SchedSimulation, ReservedStartsAreKeptForEachProject) {
  int kept = 0;
  for (unsigned seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, {.changes = false, .all_forecast = true, .projects = true});
    for (int i = 0; i < 120 && !HasFailure(); ++i) simulation.step();
    kept += simulation.reservations_kept();
  }
  EXPECT_GT(kept, 10);
}

// Forecasts are correct and nothing else changes: jobs that slip in delay no reserved start,
// however many there are.
TEST(SchedSimulation, ReservedStartsAreKept) {
  int kept = 0;
  for (unsigned seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, {.changes = false, .all_forecast = true});
    for (int i = 0; i < 120 && !HasFailure(); ++i) simulation.step();
    kept += simulation.reservations_kept();
  }
  EXPECT_GT(kept, 20);
}

// Small jobs keep arriving, and there is always room for one more of them.
TEST(SchedSimulation, AJobOfAllDevicesStartsDespiteAStreamOfSmallOnes) {
  Scene s;
  for (int i = 0; i < 4; ++i) {
    Device& d = s.inventory.devices.emplace_back();
    d.name = "devices/gpu-" + std::to_string(i);
    d.kind = DeviceKind::kGpu;
    d.memory_bytes = 80 * kGiB;
    d.slots = 8;
  }
  const auto small = [](int64_t order) {
    WaitingJob job;
    job.uid = job.name = "small-" + std::to_string(order);
    job.order = order;
    job.asked.wish = DeviceWish::kGpu;
    job.on_gpu = {20 * kGiB, {5 * kMinuteUs, 6 * kMinuteUs, 10 * kMinuteUs}};
    return job;
  };
  Queue queue;
  Fleet fleet;
  fleet.set_devices(s.inventory);
  std::map<std::string, int64_t> ends;
  int64_t order = 0, began = 0, now = 0;
  for (; now < 60 * kMinuteUs && began == 0; now += kMinuteUs) {
    for (int i = 0; i < 4; ++i) queue.put(small(++order));
    if (now == 5 * kMinuteUs) {
      WaitingJob all = small(++order);
      all.uid = all.name = "all";
      all.asked.gpus = 4;
      all.asked.exclusive = true;
      queue.put(all);
    }
    std::erase_if(ends, [&](const auto& end) {
      if (end.second > now) return false;
      fleet.remove(end.first);
      return true;
    });
    for (const StartDecision& start : decide(queue, fleet, s, now).starts) {
      PlacedJob job;
      job.uid = start.uid;
      job.devices = start.devices;
      job.bytes = 20 * kGiB;
      job.running = true;
      job.exclusive = start.uid == "all";
      job.end = {now + 5 * kMinuteUs, now + 6 * kMinuteUs, now + 10 * kMinuteUs};
      ends[start.uid] = now + 8 * kMinuteUs;
      if (start.uid == "all") began = now;
      fleet.place(job);
      queue.remove(start.uid);
    }
  }
  EXPECT_GT(began, 0);
  // Eight jobs were ahead of it. The last of them began at minute 9 and may take ten minutes.
  EXPECT_LE(began, 19 * kMinuteUs);
}

TEST(SchedSimulation, SameSnapshotSameDecisions) {
  Scene s;
  Device cpu;
  cpu.name = "devices/cpu";
  cpu.slots = 2;
  s.inventory.devices = {cpu};
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    WaitingJob job;
    job.uid = "job-" + std::to_string(i);
    job.order = i;
    job.priority = static_cast<int32_t>(random() % 3);
    s.waiting.push_back(job);
  }
  const Decided first = decide(s, 0);
  std::shuffle(s.waiting.begin(), s.waiting.end(), random);  // row order must not matter
  const Decided second = decide(s, 0);
  ASSERT_EQ(first.starts.size(), second.starts.size());
  for (size_t i = 0; i < first.starts.size(); ++i)
    EXPECT_EQ(first.starts[i].uid, second.starts[i].uid);
}

}  // namespace
}  // namespace trainyard::server
