// Thousands of random events on a clock of its own, from a seed that is printed on failure: jobs
// come, end, lose their workers, devices come and go. After each decision the invariants are
// checked against a plain restatement of the rules, not against decide()'s own code.
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
  explicit Simulation(unsigned seed) : random_(seed) {
    Device cpu;
    cpu.name = "devices/cpu";
    cpu.slots = 1 + pick(3);
    state_.inventory.devices.push_back(cpu);
    const int gpus = pick(6);
    for (int i = 0; i < gpus; ++i) {
      Device gpu;
      gpu.name = "devices/gpu-" + std::to_string(i);
      gpu.kind = DeviceKind::kGpu;
      gpu.model = pick(3) == 0 ? "B" : "A";
      gpu.slots = 1 + pick(2);
      state_.inventory.devices.push_back(gpu);
    }
  }

  void step() {
    now_us_ += pick(1000);
    switch (pick(6)) {
      case 0:
      case 1:
        submit();
        break;
      case 2:
        end_one(/*lost=*/false);
        break;
      case 3:
        end_one(/*lost=*/true);
        break;
      case 4:
        if (state_.inventory.devices.size() > 1 && pick(10) == 0)
          flip(state_.inventory
                   .devices[1 + pick(static_cast<int>(state_.inventory.devices.size()) - 1)]);
        break;
      default:
        break;  // time passes
    }
    const Decided d = decide(state_, now_us_);
    check(d);
    apply(d);
  }
  void drain() {  // everything that can run, runs to its end
    for (Device& d : state_.inventory.devices) d.schedulable = true;
    now_us_ += kRetryPauseMaxUs;
    for (int i = 0; i < 10'000 && !(state_.waiting.empty() && state_.placed.empty()); ++i) {
      const Decided d = decide(state_, now_us_);
      check(d);
      apply(d);
      if (!state_.placed.empty())
        state_.placed.erase(state_.placed.begin() + pick(size(state_.placed)));
    }
    for (const WaitingJob& j : state_.waiting) {
      EXPECT_EQ(j.asked.wish, DeviceWish::kGpu) << "starved";
      for (const Device& d : state_.inventory.devices) {
        EXPECT_FALSE(d.kind == DeviceKind::kGpu && count_alike(d) >= j.asked.gpus) << "starved";
      }
    }
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  template <typename T>
  static int size(const std::vector<T>& v) {
    return static_cast<int>(v.size());
  }

  void submit() {
    WaitingJob job;
    job.order = ++order_;
    job.uid = "job-" + std::to_string(order_);
    job.priority = pick(5) - 2;
    job.asked.wish = static_cast<DeviceWish>(1 + pick(3));
    if (job.asked.wish == DeviceWish::kGpu && pick(2) == 0) job.asked.gpus = 2 + pick(2);
    jobs_[job.uid] = job;
    state_.waiting.push_back(job);
  }
  void end_one(bool lost) {
    if (state_.placed.empty()) return;
    const int i = pick(size(state_.placed));
    const PlacedJob placed = state_.placed[static_cast<size_t>(i)];
    state_.placed.erase(state_.placed.begin() + i);
    if (!lost) return;
    WaitingJob job = jobs_[placed.uid];
    job.asked.kind_before =
        placed.devices[0] == "devices/cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
    job.retry_time_us = now_us_ + pick(5000);
    ++job.workers_lost;
    jobs_[job.uid] = job;
    state_.waiting.push_back(job);
  }
  static void flip(Device& d) { d.schedulable = !d.schedulable; }

  bool usable(DeviceKind kind) const {
    return std::any_of(state_.inventory.devices.begin(), state_.inventory.devices.end(),
                       [&](const Device& d) { return d.kind == kind && d.schedulable; });
  }
  /// Devices like this one that can be used, busy or not.
  int count_alike(const Device& like) const {
    return static_cast<int>(std::count_if(
        state_.inventory.devices.begin(), state_.inventory.devices.end(), [&](const Device& d) {
          return d.kind == like.kind && d.model == like.model && d.schedulable;
        }));
  }
  bool may_use(const WaitingJob& job, const Device& d) const {
    if (!d.schedulable) return false;
    if (job.asked.gpus > 1) return d.kind == DeviceKind::kGpu && count_alike(d) >= job.asked.gpus;
    if (job.asked.wish == DeviceWish::kCpu) return d.kind == DeviceKind::kCpu;
    if (job.asked.wish == DeviceWish::kGpu) return d.kind == DeviceKind::kGpu;
    if (job.asked.kind_before && usable(*job.asked.kind_before))
      return d.kind == *job.asked.kind_before;
    return d.kind == (usable(DeviceKind::kGpu) ? DeviceKind::kGpu : DeviceKind::kCpu);
  }

  static bool is_behind(const WaitingJob& job, const WaitingJob& other) {
    return job.priority != other.priority ? job.priority < other.priority : job.order > other.order;
  }

  void check(const Decided& d) {
    std::map<std::string, int> used;
    for (const PlacedJob& p : state_.placed) {
      for (const std::string& device : p.devices) ++used[device];
    }
    for (const StartDecision& s : d.starts) {
      for (const std::string& device : s.devices) ++used[device];
      EXPECT_EQ(std::set<std::string>(s.devices.begin(), s.devices.end()).size(),
                static_cast<size_t>(jobs_[s.uid].asked.gpus));
      EXPECT_FALSE(s.reason.empty() || s.message.empty());
    }
    std::map<std::string, const Device*> devices;
    for (const Device& device : state_.inventory.devices) {
      devices[device.name] = &device;
      EXPECT_LE(used[device.name], device.slots) << device.name;
    }
    std::map<std::string, int> decided;  // each waiting job exactly once
    for (const StartDecision& s : d.starts) ++decided[s.uid];
    for (const JobWait& w : d.waits) {
      ++decided[w.uid];
      EXPECT_FALSE(w.reason.empty() || w.message.empty());
      const WaitingJob& waiting = jobs_[w.uid];
      if (waiting.retry_time_us > now_us_) {
        EXPECT_EQ(w.reason, "RETRY_BACKOFF");
        EXPECT_LE(d.wake_time_us.value(), waiting.retry_time_us);
        continue;
      }
      // Not so many alike stay free as it wants, but for those that a job before it waits for; and
      // nobody behind it took one that it could use.
      std::map<std::string, int> free;
      for (const Device& device : state_.inventory.devices) {
        if (!may_use(waiting, device) || used[device.name] >= device.slots) continue;
        const bool kept = std::any_of(d.waits.begin(), d.waits.end(), [&](const JobWait& o) {
          const WaitingJob& other = jobs_[o.uid];
          return is_behind(waiting, other) && other.retry_time_us <= now_us_ &&
                 may_use(other, device);
        });
        if (!kept) {
          EXPECT_LT(++free[device.model], waiting.asked.gpus) << w.uid;
        }
      }
      for (const StartDecision& s : d.starts) {
        if (!is_behind(jobs_[s.uid], waiting)) continue;
        for (const std::string& device : s.devices) {
          EXPECT_FALSE(may_use(waiting, *devices[device])) << s.uid << " before " << w.uid;
        }
      }
    }
    EXPECT_EQ(decided.size(), state_.waiting.size());
    for (const WaitingJob& job : state_.waiting) EXPECT_EQ(decided[job.uid], 1);
    for (const StartDecision& s : d.starts) {
      for (const std::string& device : s.devices) {
        EXPECT_TRUE(may_use(jobs_[s.uid], *devices[device]));
        EXPECT_EQ(devices[device]->model, devices[s.devices[0]]->model);
      }
      EXPECT_LE(jobs_[s.uid].retry_time_us, now_us_);
    }
  }

  void apply(const Decided& d) {
    for (const StartDecision& s : d.starts) {
      state_.placed.push_back({s.uid, s.devices});
      std::erase_if(state_.waiting, [&](const WaitingJob& j) { return j.uid == s.uid; });
    }
  }

  std::mt19937 random_;
  int64_t now_us_ = 1'000'000;
  int64_t order_ = 0;
  Scene state_;
  std::map<std::string, WaitingJob> jobs_;
};

TEST(SchedSimulation, InvariantsHoldOverThousandsOfEvents) {
  for (unsigned seed = 1; seed <= 15 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    for (int i = 0; i < 250 && !HasFailure(); ++i) simulation.step();
    simulation.drain();
  }
}

// A queue that lives through thousands of changes, and a walk over all jobs, decide alike.
class Comparison {
 public:
  explicit Comparison(unsigned seed) : random_(seed) {
    for (int i = pick(6); i >= 0; --i) {
      Device& d = scene_.inventory.devices.emplace_back();
      d.kind = i == 0 ? DeviceKind::kCpu : DeviceKind::kGpu;
      d.name = i == 0 ? "devices/cpu" : "devices/gpu-" + std::to_string(i);
      d.model = pick(2) == 0 ? "A" : "B";
    }
  }

  void step() {
    now_us_ += pick(20) == 0 ? -pick(2'000'000) : pick(400'000);  // the clock may jump back
    for (int i = pick(4); i > 0; --i) change_jobs();
    if (pick(8) == 0) change_device();
    scene_.draining = pick(50) == 0;
    scene_.inventory.note = pick(30) == 0 ? "No GPU: it has left." : "";
    const Decided plain = decide_one_by_one(scene_, now_us_);
    ASSERT_EQ(decide(queue_, scene_, now_us_).text(), plain.text());
    for (const StartDecision& start : plain.starts) {
      started_ += 1;
      scene_.placed.push_back({start.uid, start.devices});
      take_out(start.uid);
    }
    waited_ += plain.waits.size();
    while (!scene_.placed.empty() && pick(2) == 0) end_one();
  }
  size_t started() const { return started_; }
  size_t waited() const { return waited_; }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  WaitingJob take_out(std::string_view uid) {
    const auto job = std::ranges::find(scene_.waiting, uid, &WaitingJob::uid);
    WaitingJob copy = *job;
    queue_.remove(uid);  // while `uid`, which may be the job's own, is still there
    scene_.waiting.erase(job);
    return copy;
  }
  void put(WaitingJob job) {
    jobs_[job.uid] = job;
    queue_.put(job);
    scene_.waiting.push_back(std::move(job));
  }
  void change_jobs() {
    if (scene_.waiting.empty() || pick(3) > 0) {
      WaitingJob job;
      job.order = ++order_;
      job.uid = "job-" + std::to_string(order_);
      job.priority = pick(3) - 1;
      job.asked.wish = static_cast<DeviceWish>(1 + pick(3));
      if (job.asked.wish == DeviceWish::kGpu) job.asked.gpus = 1 + pick(3);
      return put(std::move(job));
    }
    const auto at = static_cast<size_t>(pick(static_cast<int>(scene_.waiting.size())));
    WaitingJob job = take_out(scene_.waiting[at].uid);  // cancelled
    job.priority = pick(5) - 2;
    if (pick(2) == 0) put(std::move(job));  // or only of another priority
  }
  void end_one() {
    const PlacedJob placed = scene_.placed.front();
    scene_.placed.erase(scene_.placed.begin());
    if (pick(2) == 0) return;
    WaitingJob job = jobs_[placed.uid];
    job.asked.kind_before =
        placed.devices[0] == "devices/cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
    job.workers_lost += pick(2);
    job.retry_time_us = pick(3) == 0 ? 0 : now_us_ + pick(2'000'000);
    put(std::move(job));
  }
  void change_device() {
    auto& devices = scene_.inventory.devices;
    Device& d = devices[static_cast<size_t>(pick(static_cast<int>(devices.size())))];
    d.schedulable = pick(3) > 0;
    d.checking = !d.schedulable && pick(3) == 0;
    d.busy = !d.schedulable && pick(3) == 0;
    d.slots = pick(3);
  }

  std::mt19937 random_;
  int64_t now_us_ = 10'000'000;
  int64_t order_ = 0;
  Scene scene_;
  Queue queue_;
  std::map<std::string, WaitingJob> jobs_;
  size_t started_ = 0, waited_ = 0;
};

TEST(SchedSimulation, AQueueKeptUpToDateDecidesAsAWalkOverAllJobs) {
  size_t started = 0, waited = 0;
  for (unsigned seed = 1; seed <= 15 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Comparison comparison(seed);
    for (int i = 0; i < 120 && !HasFatalFailure(); ++i) comparison.step();
    started += comparison.started();
    waited += comparison.waited();
  }
  EXPECT_GT(started, 200u);
  EXPECT_GT(waited, 5000u);
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
  std::shuffle(s.waiting.begin(), s.waiting.end(), random);  // the order of the rows is no matter
  const Decided second = decide(s, 0);
  ASSERT_EQ(first.starts.size(), second.starts.size());
  for (size_t i = 0; i < first.starts.size(); ++i)
    EXPECT_EQ(first.starts[i].uid, second.starts[i].uid);
}

}  // namespace
}  // namespace trainyard::server
