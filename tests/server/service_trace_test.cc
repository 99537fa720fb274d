// Runs the simulation's traces (tests/bench/schedule_sim) through the real dispatcher, store and
// supervisor: 1,000 jobs of a published workload shape on scripted GPUs, with pretended workers,
// while outside processes take memory and give it back.
//
// The dispatcher reads the devices on its own thread at the start of each scheduling pass. The test
// records the state there and later compares the pass's decisions with it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "server/dispatch/other_processes_memory.h"
#include "tests/bench/schedule_sim/random.h"
#include "tests/bench/schedule_sim/trace.h"
#include "tests/server/dispatcher_support.h"

namespace trainyard::server {
namespace {

/// The state on which a scheduling pass bases its decisions.
struct Before {
  int64_t time_us = 0;
  std::map<std::string, std::vector<PlacedJob>> on;  // jobs by device
  std::map<std::string, int64_t> others;             // bytes, by device
  ScriptedDevices::Holders holders;
  std::string first;  // the ID of the first waiting job in order; empty if not determined
};

class ServiceTrace : public ServiceDispatcher {
 protected:
  static constexpr int kJobs = 1000;
  static constexpr double kTraceMs = 6000;  // during which jobs arrive, on a fast machine
  static constexpr double kJobCostMs = 20;  // highest overhead per job on such a machine
  static constexpr double kSlower = 2;      // run times relative to arrivals, so that a queue forms
  static constexpr int kFirstEvery = 4;     // the first job is determined in every fourth pass

  void note() {
    keep_reading();
    let_others_come_and_go();
    Before& before = decisions_.emplace_back();
    before.time_us = system_clock().wall_us();
    const std::vector<DeviceView> views = dispatcher_->devices(devices_->all());
    for (size_t i = 0; i < views.size(); ++i) {
      const std::string& name = devices_->all()[i].name;
      before.on[name] = views[i].jobs;
      before.others[name] = 0;
    }
    if (decisions_.size() % kFirstEvery == 0) before.first = first_in_order();
  }

  /// Completes the record of the previous pass, after which the devices have been read.
  void keep_reading() {
    if (decisions_.empty()) return;
    decisions_.back().holders = devices_->last_holders();
    for (const auto& [name, bytes] : devices_->last_others()) {
      decisions_.back().others.at(name) = bytes;
      others_came_ += std::exchange(held_by_others_[name], bytes) == 0 && bytes > 0;
    }
  }

  // Changes the memory that outside processes use, only on a device where no job starts or stops.
  // On other devices the dispatcher cannot tell which memory is a job's own, and outside processes
  // could take the memory promised to a job.
  void let_others_come_and_go() {
    const std::vector<Device>& all = devices_->all();
    const auto i = static_cast<size_t>(random_.below(static_cast<int>(all.size())));
    const Device& device = all[i];
    const DeviceView view = dispatcher_->devices(all)[i];
    if (device.kind != DeviceKind::kGpu) return;
    int64_t free = device.memory_bytes;
    std::vector<std::string> ours;
    for (const PlacedJob& job : view.jobs) {
      if (!job.running || job.stopping) return;
      ours.push_back(job.uid);
      free -= job.bytes + device.overhead_bytes;
    }
    const bool come = devices_->others(device.name) == 0 && random_.chance(0.5);
    const double share = random_.uniform(0.1, 0.9);
    auto bytes = come ? static_cast<int64_t>(static_cast<double>(free) * share) : 0;
    // The dispatcher ignores such small amounts, so its jobs would not avoid them.
    if (bytes <= OtherProcessesMemory::kIgnoredBytes) bytes = 0;
    devices_->set_others_beside(std::move(ours), device.name, bytes);
  }

  std::string first_in_order() {
    std::string first;
    for (const QueuedJob& job : dispatcher_->queue(kQueueProjectedMax, "").jobs) {
      if (first.empty() || is_ahead(job.id, first)) first = job.id;
    }
    return first;
  }
  bool is_ahead(const std::string& a, const std::string& b) const {
    const ScriptedJob &of_a = trace_.at(a), &of_b = trace_.at(b);
    if (of_a.priority != of_b.priority) return of_a.priority > of_b.priority;
    return number_of(a) < number_of(b);
  }
  static int number_of(const std::string& id) { return std::stoi(id.substr(4)); }

  /// Returns the factor by which the trace is stretched on this machine. Jobs must take long
  /// compared with the time to store and start them; otherwise hardly any two would overlap.
  double measure_slowness() {
    constexpr int kTimes = 5;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) {
      const std::string id = "measures-" + std::to_string(i);
      EXPECT_TRUE(store_->jobs().submit(new_job(id)).ok());
      EXPECT_TRUE(store_->jobs().request_cancel("default", id).ok());
      EXPECT_EQ(std::system("true"), 0);
    }
    const std::chrono::duration<double, std::milli> passed =
        std::chrono::steady_clock::now() - begin;
    // A job is stored four times: when it is submitted, starts, runs and ends. Two of those are
    // measured.
    return std::max(1.0, 2 * passed.count() / kTimes / kJobCostMs);
  }

  /// Builds the simulation's devices, and its jobs with scaled run times.
  void make(const sim::Cluster& cluster, const sim::TraceOptions& options) {
    const std::vector<sim::TraceJob> jobs = sim::make_trace(options, cluster);
    const double ms_per_us = slowness_ * kTraceMs / static_cast<double>(jobs.back().arrive_us);
    for (const sim::TraceJob& from : jobs) {
      ScriptedJob job;
      job.id = "job-" + std::to_string(trace_.size());
      job.device = static_cast<v1::Resources::Device>(from.wish);
      job.gpus = from.gpus;
      job.bytes = from.bytes;
      job.priority = from.priority;
      job.threads = from.cores;
      job.exclusive = from.exclusive;
      job.crash = random_.chance(0.05);
      const auto work_us = static_cast<double>(from.work_us);
      const double ms = work_us * from.ends_at * ms_per_us * kSlower;
      job.ms = std::clamp<int64_t>(std::llround(ms), 1, std::llround(1500 * slowness_));
      // Forecasts are in the trace's own, unscaled time.
      job.forecast_s = std::max(1.0, work_us * from.forecast_factor / 1e6);
      arrive_ms_[job.id] = static_cast<double>(from.arrive_us) * ms_per_us;
      trace_.emplace(job.id, job);
    }
  }
  void submit_all() {
    std::vector<std::string> ids;
    for (const auto& [id, job] : trace_) ids.push_back(id);
    std::ranges::sort(ids, {}, number_of);
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& id : ids) {
      std::this_thread::sleep_until(begin +
                                    std::chrono::duration<double, std::milli>(arrive_ms_.at(id)));
      submit(trace_.at(id));
    }
  }

  PlacedJob placed(const std::string& id) {
    const ScriptedJob& job = trace_.at(id);
    PlacedJob placed;
    placed.uid = get(id).uid;
    placed.bytes = job.bytes;
    placed.threads = job.threads;
    placed.exclusive = job.exclusive;
    return placed;
  }
  /// Returns the limit that these jobs and outside processes exceed together, or "".
  static std::string excess(const Device& device, const std::vector<PlacedJob>& jobs,
                            int64_t others) {
    int64_t bytes = others;
    int threads = 0;
    bool exclusive = false;
    for (const PlacedJob& job : jobs) {
      bytes += job.bytes + device.overhead_bytes;
      threads += job.threads;
      exclusive |= job.exclusive;
    }
    if (bytes > device.memory_bytes) return std::to_string(bytes) + " bytes";
    if (std::ssize(jobs) > device.slots) return std::to_string(jobs.size()) + " jobs";
    if (exclusive && jobs.size() > 1) return "an exclusive job beside others";
    if (device.kind == DeviceKind::kCpu && jobs.size() > 1 && threads > device.cores) {
      return std::to_string(threads) + " threads";
    }
    return "";
  }
  bool would_fit(const std::string& id, const Before& before) {
    const ScriptedJob& job = trace_.at(id);
    std::map<std::string, int> fitting;  // number of devices with room, by model
    for (const Device& device : devices_->all()) {
      if ((device.kind == DeviceKind::kGpu) != (job.device == v1::Resources::GPU)) continue;
      std::vector<PlacedJob> jobs = before.on.at(device.name);
      // Until a starting or stopping worker is settled, the dispatcher may count more memory as
      // that of outside processes.
      const auto held = before.holders.find(device.name);
      const bool settled = std::ranges::all_of(jobs, [&](const PlacedJob& other) {
        return other.running && !other.stopping && held != before.holders.end() &&
               held->second.contains(other.uid);
      });
      if (!settled) continue;
      jobs.push_back(placed(id));
      if (!excess(device, jobs, before.others.at(device.name)).empty()) continue;
      if (++fitting[device.model] >= job.gpus) return true;
    }
    return false;
  }

  /// Compares each decision with the state on which it was based.
  void check_decisions(const std::vector<Moment>& moments) {
    auto next = moments.begin();
    for (size_t i = 0; i < decisions_.size(); ++i) {
      const int64_t end_us = i + 1 < decisions_.size() ? decisions_[i + 1].time_us : INT64_MAX;
      const Before& before = decisions_[i];
      std::map<std::string, std::vector<PlacedJob>> on = before.on;
      for (auto& [name, jobs] : on) {
        const auto held = before.holders.find(name);
        std::erase_if(jobs, [&](const PlacedJob& job) {  // its worker has just ended
          return job.running && (held == before.holders.end() || !held->second.contains(job.uid));
        });
      }
      std::set<std::string> started;
      for (; next != moments.end() && next->time_us < end_us; ++next) {
        if (next->state != v1::STARTING) continue;
        started.insert(next->id);
        for (const std::string& name : next->devices) {
          on[name].push_back(placed(next->id));
          EXPECT_EQ(excess(devices_->find(name), on[name], before.others.at(name)), "")
              << next->id << " on " << name << ", decision " << i;
        }
      }
      if (before.first.empty() || started.contains(before.first)) continue;
      const ScriptedJob& first = trace_.at(before.first);
      // This check does not know where an `auto` job waits, nor how long a job pauses after the
      // loss of its worker.
      if (first.device == v1::Resources::AUTO || first.crash) continue;
      const std::string uid = get(before.first).uid;
      const bool leaves = std::ranges::any_of(before.on, [&](const auto& entry) {
        return std::ranges::find(entry.second, uid, &PlacedJob::uid) != entry.second.end();
      });
      if (leaves) continue;  // its last process still exists
      EXPECT_FALSE(would_fit(before.first, before))
          << before.first << " is the first, fits, and does not start, decision " << i;
      ++first_waited_;
    }
  }

  /// Runs a trace on 24 GPUs of three models. `load` is the arriving work relative to the capacity.
  /// `urgent_share` is the share of jobs with a higher priority.
  void run(double load, double urgent_share, Policy policy) {
    slowness_ = measure_slowness();
    policy.preempt_after_us =
        std::llround(static_cast<double>(policy.preempt_after_us) * slowness_);
    sim::ClusterOptions options;
    options.gpus = 24;
    options.gpus_per_host = 4;
    options.cores_per_host = 4;
    options.memory_per_host = 64 * kGiB;
    const sim::Cluster cluster = sim::make_cluster(options);
    sim::TraceOptions trace;
    trace.jobs = kJobs;
    trace.owners = 10;
    trace.load = load;
    trace.urgent_share = urgent_share;
    make(cluster, trace);

    std::vector<Device> devices;
    for (const sim::Machine& machine : cluster.machines) devices.push_back(machine.device);
    start(std::move(devices), policy, [this] { note(); });
    submit_all();
    for (int i = 0; i < 4 && store_->jobs().count().value().queued > 0; ++i) {
      (void)eventually([&] { return store_->jobs().count().value().queued == 0; });
    }
    wait_until_idle();
    dispatcher_->halt();
    keep_reading();

    const std::vector<Moment> moments = read_moments();
    check(moments);
    check_decisions(moments);
  }

  double slowness_ = 1;  // the result of measure_slowness()
  sim::Random random_{17, 1};
  std::map<std::string, ScriptedJob> trace_;
  std::map<std::string, double> arrive_ms_;
  std::vector<Before> decisions_;
  std::map<std::string, int64_t> held_by_others_;
  int others_came_ = 0, first_waited_ = 0;
};

TEST_F(ServiceTrace, AThousandJobsOfATraceEndDespiteChangingMemoryOfOthers) {
  run(12, 0.05, {});
  size_t together = 0, gangs = 0;
  for (const Before& before : decisions_) {
    for (const auto& [name, jobs] : before.on) {
      if (name != "devices/cpu") together = std::max(together, jobs.size());
    }
  }
  for (const auto& [id, job] : trace_) gangs += job.gpus > 1;
  EXPECT_EQ(together, 4u);
  EXPECT_GT(gangs, 100u);
  EXPECT_GT(others_came_, 10);
  EXPECT_GT(first_waited_, 0) << "no first job waited, which shows nothing";
  EXPECT_GT(workers_->attempts(), kJobs) << "no worker was lost";
}

TEST_F(ServiceTrace, PreemptedJobsResumeAndAllEnd) {
  Policy policy;
  policy.preemption = Preemption::kPriority;
  policy.preempt_after_us = 50'000;
  run(20, 0.2, policy);
  int32_t most_urgent = 0;
  for (const auto& [id, job] : trace_) most_urgent = std::max(most_urgent, job.priority);
  std::set<std::string> preempted;
  for (const Moment& m : read_moments()) {
    if (m.reason == "PREEMPTED") preempted.insert(m.id);
  }
  EXPECT_GT(preempted.size(), 3u) << "hardly a job was preempted, which shows nothing";
  for (const std::string& id : preempted) {
    EXPECT_LT(trace_.at(id).priority, most_urgent) << id;
    EXPECT_EQ(get(id).progress.step(), trace_.at(id).ms) << id;
  }
}

}  // namespace
}  // namespace trainyard::server
