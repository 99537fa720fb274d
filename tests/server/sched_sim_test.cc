// Tests of decide() on simulated clusters (tests/bench/schedule_sim), with every invariant checked
// at every event. They also test the simulation itself: it must catch policies that break a rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/bench/schedule_sim/random.h"
#include "tests/bench/schedule_sim/simulation.h"

namespace trainyard::sim {
namespace {

ClusterOptions equal_gpus(int gpus, int slots = 4) {
  ClusterOptions options;
  options.gpus = gpus;
  options.models = {{"H100", 80 * kGiB, 1, 1}};
  options.gpu_slots = slots;
  return options;
}

/// Returns the options of a world in which forecasts are correct and only jobs come and go.
SimulationOptions strict_options() {
  SimulationOptions options;
  options.strict = true;
  options.physics.interference = false;
  return options;
}
TrainyardOptions by_order() {
  TrainyardOptions options;
  options.half_life_us = 0;
  return options;
}
TraceOptions exact_trace(TraceShape shape, uint64_t seed, int jobs) {
  TraceOptions options;
  options.shape = shape;
  options.seed = seed;
  options.jobs = jobs;
  options.owners = 5;
  options.forecast_spread = 0;
  options.early_ends = false;
  return options;
}

TraceJob job_of(int64_t arrive_s, int gpus, int64_t gib, int64_t work_s) {
  TraceJob job;
  job.arrive_us = arrive_s * kSecondUs;
  job.gpus = gpus;
  job.bytes = gib * kGiB;
  job.work_us = work_s * kSecondUs;
  return job;
}

std::string text_of(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& v : violations) {
    text += v.invariant + " at event " + std::to_string(v.event) + ": " + v.text + "\n";
  }
  return text;
}

/// Runs jobs under the daemon's scheduler; `world`, if given, is called with the final state.
Results run(const ClusterOptions& cluster_options, std::vector<TraceJob> jobs,
            const SimulationOptions& options, const TrainyardOptions& trainyard,
            const std::function<void(const World&)>& inspect = {}) {
  const Cluster cluster = make_cluster(cluster_options);
  Simulation simulation(cluster, std::move(jobs), options);
  const auto policy = make_trainyard(simulation.world(), trainyard);
  Results results = simulation.run(*policy);
  EXPECT_EQ(text_of(results.violations), "");
  if (inspect) inspect(simulation.world());
  return results;
}

TEST(SchedSim, TracesMatchTheirPublications) {
  const Cluster cluster = make_cluster({.gpus = 1024});
  TraceOptions options;
  options.jobs = 50'000;
  options.owners = 200;
  options.shape = TraceShape::kHelios;
  TraceFigures f = figures_of(make_trace(options, cluster));
  EXPECT_NEAR(f.median_s, 206, 100);
  EXPECT_NEAR(f.mean_s, 6652, 3000);
  EXPECT_GT(f.single_share, 0.5);
  EXPECT_LT(f.single_time_share, 0.15);
  EXPECT_LT(f.large_share, 0.1);
  EXPECT_GT(f.large_time_share, 0.5);
  options.shape = TraceShape::kPai;
  options.sharing = true;
  f = figures_of(make_trace(options, cluster));
  EXPECT_NEAR(f.median_s, 1380, 700);
  EXPECT_NEAR(f.p90_s, 16'200, 8000);
  EXPECT_GT(f.top_owner_share, 0.6);
  options.shape = TraceShape::kPhilly;
  f = figures_of(make_trace(options, cluster));
  EXPECT_NEAR(f.mean_s, 28'329, 14'000);
}

TEST(SchedSim, TheSameSeedIsTheSameRun) {
  const auto digest = [](uint64_t seed) {
    ClusterOptions cluster{.gpus = 24};
    TraceOptions trace;
    trace.seed = seed;
    trace.jobs = 400;
    SimulationOptions options;
    options.seed = seed;
    options.device_mtbf_hours = 100;
    options.others_share = 0.1;
    return run(cluster, make_trace(trace, make_cluster(cluster)), options, {}).digest;
  };
  EXPECT_EQ(digest(1), digest(1));
  EXPECT_NE(digest(1), digest(2));
}

TEST(SchedSim, InvariantsHoldWhileDevicesWorkersAndOtherProcessesChange) {
  for (uint64_t seed = 1; seed <= 12 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ClusterOptions cluster{.gpus = static_cast<int>(1 + seed * seed)};
    TraceOptions trace;
    trace.shape = static_cast<TraceShape>(seed % 3);
    trace.seed = seed;
    trace.jobs = 500;
    trace.owners = 7;
    trace.urgent_share = 0.1;
    trace.forecast_spread = 0.25 * static_cast<double>(seed % 4);
    SimulationOptions options;
    options.seed = seed;
    options.device_mtbf_hours = 50;
    options.worker_mtbf_hours = 10;
    options.others_share = 0.1;
    // The devices could do more work than the trace has, but its longest jobs take days, and a gang
    // may have to wait for one of them. A job that starved would wait to the end of the trace.
    options.starvation_us = 7 * 24 * kHourUs;
    TrainyardOptions trainyard;
    trainyard.forecast_spread = trace.forecast_spread;
    trainyard.half_life_us = seed % 2 == 0 ? 0 : 24 * kHourUs;
    const Results r = run(cluster, make_trace(trace, make_cluster(cluster)), options, trainyard);
    EXPECT_GT(r.worker_losses, 0);
    EXPECT_EQ(r.done + r.withdrawn, trace.jobs);
  }
}

// If forecasts are correct, the first job in order starts no later than was possible when it became
// the first. Neither small jobs behind it nor jobs that share its devices delay it.
TEST(SchedSim, ReservedStartsAreKeptWhereForecastsHold) {
  int64_t waited = 0;
  for (uint64_t seed = 1; seed <= 24 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto gpus = static_cast<int>(2 + 2 * seed), slots = static_cast<int>(1 + seed % 4);
    const ClusterOptions cluster = equal_gpus(gpus, slots);
    TraceOptions trace = exact_trace(static_cast<TraceShape>(seed % 3), seed, 300);
    trace.load = 2.5;
    trace.sharing = seed % 5 != 0;
    TrainyardOptions trainyard = by_order();
    trainyard.preemption = seed % 2 == 0;
    waited += run(cluster, make_trace(trace, make_cluster(cluster)), strict_options(), trainyard)
                  .waiting_max;
  }
  EXPECT_GT(waited, 500);
}

TEST(SchedSim, JobsThatFitTogetherRunTogether) {
  std::vector<TraceJob> jobs;
  for (int i = 0; i < 8; ++i) {
    jobs.push_back(job_of(0, 1, 19, 1000));  // with 0.5 GiB of overhead, four fit in 80 GiB
    jobs.back().demand = 0.2;
  }
  const Results r = run(equal_gpus(2), jobs, {}, {});
  EXPECT_EQ(r.waits.at("all").max_s, 0);
  EXPECT_EQ(r.jobs_on_gpu_max, 4);
  jobs.front().exclusive = true;
  EXPECT_GT(run(equal_gpus(2), jobs, {}, {}).waits.at("all").max_s, 0);
}

// Jobs are packed as tightly as possible: none beyond the memory, and none refused that would fit.
TEST(SchedSim, AThousandRandomJobsArePacked) {
  ClusterOptions cluster = equal_gpus(8, /*slots=*/8);
  TraceOptions trace = exact_trace(TraceShape::kPai, 3, 1000);
  trace.load = 1000;
  trace.auto_share = 0;
  const Results r =
      run(cluster, make_trace(trace, make_cluster(cluster)), strict_options(), by_order());
  EXPECT_EQ(r.done + r.withdrawn, 1000);
  EXPECT_GT(r.jobs_on_gpu_max, 3);
}

// The bound is the upper forecast of the jobs that run when the large job arrives, however many
// small jobs come later.
TEST(SchedSim, AJobThatNeedsEveryDeviceStartsWithinItsBound) {
  std::vector<TraceJob> jobs;
  constexpr int64_t kSmallS = 600;
  for (int64_t s = 0; s < 24 * 3600; s += 20) {
    TraceJob small = job_of(s, 1, 4, kSmallS);
    small.owner = static_cast<int>(s % 3);
    small.demand = 0.1;
    jobs.push_back(small);
  }
  const auto whole = static_cast<size_t>(3600 / 20);
  jobs[whole] = job_of(3600, 8, 78, 1000);
  jobs[whole].owner = 3;
  for (const int64_t half_life_us : {int64_t{0}, 24 * kHourUs}) {
    TrainyardOptions trainyard;
    trainyard.half_life_us = half_life_us;
    run(equal_gpus(8), jobs, {}, trainyard, [&](const World& world) {
      const JobState& s = world.state(static_cast<int>(whole));
      EXPECT_LE(s.waited_us, (kSmallS + 10) * kSecondUs);
    });
  }
}

// One job has neither a forecast nor a time limit, and a gang needs its device too. After the time
// limit for reserving, small jobs get the devices reserved for the gang, which still starts soon
// after the end of that job.
TEST(SchedSim, AMultiDeviceJobBehindAnUnknownEndNeitherStarvesNorIdlesDevices) {
  constexpr int64_t kSmallS = 600, kUnknownS = 12 * 3600, kKeptS = 900;
  std::vector<TraceJob> jobs = {job_of(0, 1, 78, kUnknownS)};
  jobs[0].is_forecast = false;
  for (int64_t s = 10; s < 24 * 3600; s += 100) {
    const bool whole = s == 3610;
    jobs.push_back(whole ? job_of(s, 8, 78, 1000) : job_of(s, 1, 4, kSmallS));
    jobs.back().demand = whole ? 1 : 0.1;
  }
  constexpr int kWhole = 1 + 3600 / 100;
  TrainyardOptions trainyard = by_order();
  trainyard.reserved_idle_max_us = kKeptS * kSecondUs;
  run(equal_gpus(8), jobs, {}, trainyard, [&](const World& world) {
    const int64_t bound_s = kUnknownS - 3610 + kSmallS + 10;
    EXPECT_LE(world.state(kWhole).waited_us, bound_s * kSecondUs);
    int64_t lent = 0;
    for (int id = kWhole + 1; world.job(id).arrive_us < (kUnknownS - 3600) * kSecondUs; ++id) {
      // The jobs on a device end first; then the device is reserved for the gang once more.
      EXPECT_LE(world.state(id).waited_us, (kSmallS + kKeptS + 10) * kSecondUs) << id;
      ++lent;
    }
    EXPECT_GT(lent, 300);
  });
}

// Jobs of higher priority that fit only one of two models keep that model busy forever. A job that
// fits the other model waits there only for the running jobs, though smaller jobs keep arriving.
TEST(SchedSim, JobsForOneModelDoNotStarveThoseForAnother) {
  ClusterOptions cluster;
  cluster.gpus = 2;
  cluster.gpus_per_host = 1;
  cluster.models = {{"A100", 80 * kGiB, 1, 1}, {"L4", 24 * kGiB, 0.5, 1}};
  constexpr int64_t kSmallS = 600;
  std::vector<TraceJob> jobs;
  int medium = -1;
  for (int64_t s = 0; s < 12 * 3600; s += 60) {
    if (s % 480 == 0) {
      jobs.push_back(job_of(s, 1, 78, 600));
      jobs.back().priority = 5;
    }
    if (s == 3600) {
      medium = static_cast<int>(jobs.size());
      jobs.push_back(job_of(s, 1, 20, 600));
      jobs.back().priority = 3;
    }
    jobs.push_back(job_of(s, 1, 4, kSmallS));
    jobs.back().demand = 0.2;
  }
  TrainyardOptions trainyard = by_order();
  trainyard.preemption = false;
  run(cluster, jobs, {}, trainyard, [&](const World& world) {
    EXPECT_LE(world.state(medium).waited_us, (2 * kSmallS + 10) * kSecondUs);
  });
}

/// Simulates a job that needs every device amid a stream of small jobs. Returns its wait in
/// seconds.
double wait_among(const std::function<TraceJob(Random&, double)>& small, int64_t half_life_us,
                  double spread) {
  constexpr int kGpus = 32;
  std::vector<TraceJob> jobs;
  Random random(7, 1);
  int whole = -1;
  for (double s = 0; s < 12 * 3600; s += random.exponential(2)) {
    if (s > 3600 && whole < 0) {
      whole = static_cast<int>(jobs.size());
      jobs.push_back(job_of(static_cast<int64_t>(s), kGpus, 78, 1000));
      jobs.back().owner = 3;
    }
    jobs.push_back(small(random, s));
    jobs.back().owner = random.below(3);
  }
  TrainyardOptions trainyard;
  trainyard.forecast_spread = trainyard.measured_spread = spread;
  trainyard.half_life_us = half_life_us;
  double waited_s = 0;
  run(equal_gpus(kGpus), jobs, {}, trainyard, [&](const World& world) {
    waited_s = static_cast<double>(world.state(whole).waited_us) / kSecondUs;
  });
  return waited_s;
}

// Forecasts are never corrected, so that some running jobs are always overdue, and each scheduling
// pass expects them to end soon.
TEST(SchedSim, AJobThatNeedsEveryDeviceStartsDespiteWrongForecasts) {
  // A job whose forecast ends before the reserved start may slip in, even if the forecast is wrong.
  // So the bound is the longest upper forecast plus the true run time of one such job.
  constexpr double kLongestS = 1200, kTooHigh = 1.5, kSpread = 0.5;
  const double upper_s = kLongestS * kTooHigh * std::exp(1.2816 * kSpread);
  const auto wild = [&](Random& random, double s) {
    const double seconds = std::clamp(random.lognormal(200, 1), 10.0, kLongestS);
    TraceJob job = job_of(static_cast<int64_t>(s), 1, 18, static_cast<int64_t>(seconds));
    job.demand = 0.2;
    job.forecast_factor = job.measured_factor = std::min(kTooHigh, random.lognormal(1, 1));
    return job;
  };
  const auto hopeful = [&](Random&, double s) {
    TraceJob job = job_of(static_cast<int64_t>(s), 1, 18, 150);
    job.demand = 0.2;
    job.forecast_factor = job.measured_factor = 0.2;
    return job;
  };
  for (const int64_t half_life_us : {int64_t{0}, 24 * kHourUs}) {
    EXPECT_LE(wait_among(wild, half_life_us, kSpread), upper_s + kLongestS);
    EXPECT_LE(wait_among(hopeful, half_life_us, 0.1), 2 * kLongestS);
  }
}

TEST(SchedSim, PreemptedJobsResumeAndEnd) {
  std::vector<TraceJob> jobs;
  for (int i = 0; i < 8; ++i) jobs.push_back(job_of(i, 1, 70, 20'000));
  for (int i = 0; i < 10; ++i) {
    jobs.push_back(job_of(2000 + 3000 * i, 4, 70, 500));
    jobs.back().priority = 5;
  }
  TrainyardOptions trainyard;
  const Results r = run(equal_gpus(8), jobs, {}, trainyard, [](const World& world) {
    for (int id = 0; id < 8; ++id) EXPECT_EQ(world.state(id).phase, Phase::kDone);
    for (int id = 8; id < 18; ++id) EXPECT_LE(world.state(id).waited_us, 610 * kSecondUs);
  });
  EXPECT_GE(r.preemptions, 10);
  EXPECT_EQ(r.useless_preemptions, 0);
  trainyard.preemption = false;
  EXPECT_EQ(run(equal_gpus(8), jobs, {}, trainyard).preemptions, 0);
}

// The owners have the same total demand, but one of them submits ten times as many jobs.
TEST(SchedSim, OwnersWhoWaitGetEqualParts) {
  std::vector<TraceJob> jobs;
  for (int i = 0; i < 1100; ++i) {
    jobs.push_back(job_of(i < 1000 ? 0 : 60, 1, 70, 1800));
    jobs.back().owner = i < 1000 ? 0 : 1;
  }
  jobs.push_back(job_of(12 * 3600, 1, 1, 10));  // the results count the time until the last arrival
  TrainyardOptions trainyard;
  const Results fair = run(equal_gpus(8), jobs, {}, trainyard);
  ASSERT_GT(fair.jain_hours, 4);
  EXPECT_GT(fair.jain, 0.95);
  const Results unfair = run(equal_gpus(8), jobs, {}, by_order());
  EXPECT_LT(unfair.jain, 0.7);
}

/// A policy that breaks a rule: it changes the decisions of decide() before they are applied.
class Broken final : public SchedulingPolicy {
 public:
  using Change = std::function<void(const World&, Plan&)>;
  Broken(std::unique_ptr<SchedulingPolicy> policy, Change change, int64_t least_run_us = 0)
      : policy_(std::move(policy)), change_(std::move(change)), least_run_us_(least_run_us) {}
  std::string_view name() const override { return "broken"; }
  void job_changed(const World& world, int id) override { policy_->job_changed(world, id); }
  void device_changed(const World& world, int d) override { policy_->device_changed(world, d); }
  int64_t least_run_us() const override { return least_run_us_; }
  Plan decide(const World& world) override {
    Plan plan = policy_->decide(world);
    change_(world, plan);
    return plan;
  }

 private:
  const std::unique_ptr<SchedulingPolicy> policy_;
  const Change change_;
  const int64_t least_run_us_;
};

Results run_broken(const std::vector<TraceJob>& jobs, Broken::Change change,
                   int64_t least_run_us = 0) {
  const Cluster cluster = make_cluster(equal_gpus(2));
  SimulationOptions options = strict_options();
  options.starvation_us = 4 * kHourUs;
  options.until_event = 5000;
  Simulation simulation(cluster, jobs, options);
  Broken policy(make_strict_priority(simulation.world()), std::move(change), least_run_us);
  return simulation.run(policy);
}

TEST(SchedSim, BrokenRulesAreDetected) {
  const auto keep = [](const World&, Plan&) {};
  const std::vector<TraceJob> two = {job_of(0, 1, 70, 1000), job_of(0, 1, 70, 1000)};
  EXPECT_EQ(run_broken(two, keep).violation_count(), 0);
  const auto on_one = [](const World&, Plan& plan) {
    for (Start& s : plan.starts) s.devices = {1};
  };
  EXPECT_EQ(run_broken(two, on_one).count("bytes"), 1);
  std::vector<TraceJob> alone = {job_of(0, 1, 7, 1000), job_of(0, 1, 7, 1000)};
  alone[1].exclusive = true;
  EXPECT_EQ(run_broken(alone, on_one).count("exclusive"), 1);
  const std::vector<TraceJob> many(5, job_of(0, 1, 7, 1000));
  EXPECT_GE(run_broken(many, on_one).count("slots"), 1);
  const auto on_cpu = [](const World&, Plan& plan) {
    for (Start& s : plan.starts) s.devices = {0};
  };
  EXPECT_EQ(run_broken(two, on_cpu).count("kind"), 2);
  std::vector<TraceJob> threads(3, job_of(0, 1, 7, 1000));
  for (TraceJob& job : threads) job.wish = DeviceWish::kCpu, job.cores = 40;
  const auto all_at_once = [](const World& world, Plan& plan) {
    plan.starts.clear();
    for (const int id : world.waiting()) plan.starts.push_back({id, {0}});
  };
  EXPECT_EQ(run_broken(threads, all_at_once).count("cores"), 2);
  const auto half = [](const World&, Plan& plan) {
    for (Start& s : plan.starts) s.devices.resize(1);
  };
  const std::vector<TraceJob> gang = {job_of(0, 2, 70, 1000)};
  EXPECT_EQ(run_broken(gang, half).count("gang"), 1);
  const auto twice = [](const World&, Plan& plan) {
    for (Start& s : plan.starts) s.devices.back() = s.devices.front();
  };
  EXPECT_EQ(run_broken(gang, twice).count("gang"), 1);
  const auto never = [](const World&, Plan& plan) { plan.starts.clear(); };
  const Results idle = run_broken(two, never);
  EXPECT_EQ(idle.count("starved"), 2);
  EXPECT_GT(idle.count("first"), 0);
}

// A gang needs more memory of each GPU than outside processes ever leave, so no policy could start
// it. The job that waits behind it forever could have started, so it counts as starved.
TEST(SchedSim, JobsThatCouldNeverStartAreNotCountedAsStarved) {
  const std::vector<TraceJob> jobs = {job_of(48 * 3600, 2, 79, 1000),
                                      job_of(48 * 3600 + 1, 1, 1, 1000)};
  SimulationOptions options;
  options.others_share = 1;
  const Cluster cluster = make_cluster(equal_gpus(2));
  Simulation trainyard(cluster, jobs, options);
  Results r = trainyard.run(*make_trainyard(trainyard.world(), {}));
  EXPECT_EQ(r.done, 1);
  EXPECT_EQ(r.never_held, 1);
  EXPECT_EQ(r.violation_count(), 0);
  Simulation fifo(cluster, jobs, options);
  r = fifo.run(*make_fifo(fifo.world()));
  EXPECT_EQ(r.done, 0);
  EXPECT_EQ(r.never_held, 1);
  EXPECT_EQ(r.count("starved"), 1);
}

TEST(SchedSim, BrokenReservationsAreDetected) {
  // A gang is first in order, but the policy gives its devices to single jobs behind it.
  std::vector<TraceJob> jobs = {job_of(0, 1, 70, 1000), job_of(1, 2, 70, 1000)};
  for (int i = 0; i < 10; ++i) jobs.push_back(job_of(2 + 400 * i, 1, 70, 5000));
  const auto overtake = [](const World& world, Plan& plan) {
    for (const int id : world.waiting()) {
      if (world.job(id).gpus > 1) continue;
      for (const int d : {1, 2}) {
        if (world.device(d).jobs.empty() && plan.starts.empty()) plan.starts.push_back({id, {d}});
      }
    }
  };
  EXPECT_GT(run_broken(jobs, overtake).count("reservation"), 0);

  // A job may not be preempted for one of equal priority, nor before the minimum run time.
  const auto preempt_all = [](const World& world, Plan& plan) {
    if (world.waiting().empty() || !plan.starts.empty()) return;
    const int beneficiary = *world.waiting().rbegin();
    for (int id = 0; id < beneficiary; ++id) {
      const Phase phase = world.state(id).phase;
      if (phase == Phase::kRunning) plan.preempts.push_back({id, beneficiary});
    }
  };
  jobs = {job_of(0, 1, 70, 1000), job_of(10, 2, 70, 1000)};
  EXPECT_GT(run_broken(jobs, preempt_all).count("preemption"), 0);
  jobs[1].priority = 1;
  EXPECT_EQ(run_broken(jobs, preempt_all).violation_count(), 0);
  EXPECT_GT(run_broken(jobs, preempt_all, 600 * kSecondUs).count("preemption"), 0);
}

TEST(SchedSim, AFailingRunIsMinimized) {
  const Cluster cluster = make_cluster(equal_gpus(4));
  const TraceOptions trace = exact_trace(TraceShape::kHelios, 5, 200);
  const auto pairs_share = [](const World& world) -> std::unique_ptr<SchedulingPolicy> {
    // The injected fault: the policy does not let two gangs start together.
    const auto drop = [](const World& w, Plan& plan) {
      int gangs = 0;
      for (const int id : w.waiting()) gangs += w.job(id).gpus > 1;
      if (gangs >= 2) {
        for (Start& s : plan.starts) s.devices.resize(1);
      }
    };
    return std::make_unique<Broken>(make_strict_priority(world), drop);
  };
  const std::vector<TraceJob> few =
      shrink(cluster, make_trace(trace, cluster), {}, pairs_share, "gang");
  EXPECT_GE(few.size(), 2u);
  EXPECT_LE(few.size(), 6u);
}

}  // namespace
}  // namespace trainyard::sim
