// Tests of measured rates and of jobs' outcomes in the store.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "server/store/remaining.h"
#include "server/store/wait_for.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreForecast : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);

  void reopen() {
    store.reset();
    store = open_or_die(small_options(directory.path()), clock);
  }
  /// Ends a job with a forecast after `steps` steps of `step_seconds` each.
  Job finish(const std::string& id, int64_t steps, double step_seconds,
             JobState state = JobState::kSucceeded, bool shared = false) {
    NewJob asked = new_job(id);
    asked.spec.mutable_resources()->set_threads(2);
    asked.plan.set_steps_total(steps + 1);
    v1::Forecast& forecast = *asked.plan.add_forecasts();
    forecast.set_device("devices/cpu");
    forecast.set_device_model("Fast CPU");
    forecast.set_graph("g1");
    forecast.set_basis("speed measured with 2 threads");
    forecast.set_step_seconds(0.5);
    forecast.set_total_seconds(60);
    const Job job = run_job(*store, asked);
    clock.pass(90'000'000);
    if (shared) {
      EXPECT_TRUE(answer_of(store->jobs(), &JobStore::note_shared, std::vector{job.uid}).ok());
    }
    AttemptUpdate end = update_of(job, 2);
    end.step = steps + 1;
    end.times = v1::RunTimes();
    end.times->set_steps(steps);
    end.times->set_step_seconds(step_seconds);
    end.move = move_to(state);
    if (state == JobState::kSucceeded) end.model = NewModel{"d-" + id, 400, 100, {}};
    return answer_of(store->jobs(), &JobStore::update_attempt, std::move(end)).value();
  }
};

TEST_F(StoreForecast, TimesOfJobsThatSharedADeviceAreIgnored) {
  finish("beside", 100, 0.9, JobState::kSucceeded, /*shared=*/true);
  finish("alone", 100, 0.6);
  const std::vector<ForecastOutcome> all = store->forecasts().outcomes(0).value();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].step_measured, 0.6);
}

TEST_F(StoreForecast, NewRatesReplaceOlderOnes) {
  ASSERT_TRUE(answer_of(store->forecasts(), &ForecastStore::save_rates,
                        StoredRates{{"cpu", 2, v1::Recipe::FP32}, 1, "old"})
                  .ok());
  ASSERT_TRUE(answer_of(store->forecasts(), &ForecastStore::save_rates,
                        StoredRates{{"cpu", 1, v1::Recipe::FP32}, 1, "one"})
                  .ok());
  ASSERT_TRUE(answer_of(store->forecasts(), &ForecastStore::save_rates,
                        StoredRates{{"cpu", 2, v1::Recipe::FP32}, 2, "new"})
                  .ok());
  reopen();
  const std::vector<StoredRates> all = store->forecasts().rates().value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].rates, "one");
  EXPECT_EQ(all[1].rates, "new");
  EXPECT_EQ(all[1].time_us, 2);
}

TEST_F(StoreForecast, NodesOfAClusterAreDistinguishedAndExpire) {
  const auto rates = [](const std::string& cluster, const std::string& node, int64_t seen_us) {
    return StoredNodeRates{.key = {cluster, node, 2, v1::Recipe::FP32},
                           .build = "b1",
                           .time_us = 5,
                           .seen_us = seen_us,
                           .memory_bytes = 7,
                           .time_limit_s = 60,
                           .rates = "of " + node};
  };
  ForecastStore& forecasts = store->forecasts();
  ASSERT_TRUE(answer_of(forecasts, &ForecastStore::save_node_rates, rates("a", "old", 1)).ok());
  ASSERT_TRUE(answer_of(forecasts, &ForecastStore::save_node_rates, rates("a", "new", 2)).ok());
  ASSERT_TRUE(answer_of(forecasts, &ForecastStore::save_node_rates, rates("b", "old", 3)).ok());
  StoredNodeRates rebuilt = rates("a", "new", 4);
  rebuilt.build = "b2";
  ASSERT_TRUE(answer_of(forecasts, &ForecastStore::save_node_rates, rebuilt).ok());
  forecasts.see_node("a", "old", 9, [](const Status&) {});
  ASSERT_TRUE(answer_of(forecasts, &ForecastStore::save_node_rates, rates("b", "new", 3))
                  .ok());  // stored after the older ones above
  reopen();
  std::vector<StoredNodeRates> all = store->forecasts().node_rates().value();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].key.node, "new");
  EXPECT_EQ(all[0].build, "b2");
  EXPECT_EQ(all[0].time_us, 5);
  EXPECT_EQ(all[0].memory_bytes, 7);
  EXPECT_EQ(all[0].time_limit_s, 60);
  EXPECT_EQ(all[1].seen_us, 9);
  EXPECT_EQ(all[1].rates, "of old");
  EXPECT_EQ(all[3].key.cluster, "b");

  const int64_t later = 10 + kNodeRatesKeptUs;
  ASSERT_TRUE(
      answer_of(store->forecasts(), &ForecastStore::save_node_rates, rates("a", "newest", later))
          .ok());
  all = store->forecasts().node_rates().value();
  ASSERT_EQ(all.size(), 3u) << "of that cluster, what nobody has seen for long goes";
  EXPECT_EQ(all[0].key.node, "newest");
  for (int64_t i = 0; i < kNodeRatesMax + 5; ++i) {
    ASSERT_TRUE(answer_of(store->forecasts(), &ForecastStore::save_node_rates,
                          rates("a", "n" + std::to_string(i), later + i))
                    .ok());
  }
  all = store->forecasts().node_rates().value();
  EXPECT_EQ(std::ranges::count(all, "a", [](const auto& r) { return r.key.cluster; }),
            kNodeRatesMax);
  EXPECT_EQ(std::ranges::count(all, "n0", [](const auto& r) { return r.key.node; }), 0);
  EXPECT_EQ(std::ranges::count(all, "b", [](const auto& r) { return r.key.cluster; }), 2);
}

TEST_F(StoreForecast, AJobThatSucceedsLeavesItsOutcome) {
  finish("first", 100, 0.75);
  reopen();
  const std::vector<ForecastOutcome> all = store->forecasts().outcomes(0).value();
  ASSERT_EQ(all.size(), 1u);
  const ForecastOutcome& o = all[0];
  EXPECT_EQ(o.device_model, "Fast CPU");
  EXPECT_EQ(o.threads, 2);
  EXPECT_EQ(o.graph, "g1");
  EXPECT_EQ(o.job, "projects/default/jobs/first");
  EXPECT_EQ(o.steps, 100);
  EXPECT_EQ(o.step, 0.5);
  EXPECT_EQ(o.step_measured, 0.75);
  EXPECT_EQ(o.total, 60);
  EXPECT_NEAR(o.total_measured, 90, 1);
  finish("second", 100, 0.8);
  EXPECT_EQ(store->forecasts().outcomes(o.number).value().size(), 1u);
}

TEST(Forecasts, AreOfTheModelOfGpuThatAJobHas) {
  v1::RunPlan plan;
  plan.add_forecasts()->set_device("devices/cpu");
  plan.add_forecasts()->set_device("devices/gpu-0");
  EXPECT_EQ(forecast_on(plan, "devices/cpu"), &plan.forecasts(0));
  EXPECT_EQ(forecast_on(plan, "devices/gpu-0"), &plan.forecasts(1));
  EXPECT_EQ(forecast_on(plan, "devices/gpu-1"), &plan.forecasts(1)) << "all are of one model";
  plan.add_forecasts()->set_device("devices/gpu-2");
  EXPECT_EQ(forecast_on(plan, "devices/gpu-2"), &plan.forecasts(2));
  EXPECT_EQ(forecast_on(plan, "devices/gpu-0"), &plan.forecasts(1));
  EXPECT_EQ(forecast_on(plan, "devices/gpu-1"), nullptr) << "of either model";
  EXPECT_EQ(forecast_on({}, "devices/cpu"), nullptr);
}

TEST_F(StoreForecast, AnOutcomeHasTheModelOfGpuOrNone) {
  const auto finish_on = [&](const std::string& id, const std::string& device) {
    NewJob asked = new_job(id);
    asked.plan.set_steps_total(100);
    for (const char* model : {"Slow GPU", "Fast GPU"}) {
      v1::Forecast& forecast = *asked.plan.add_forecasts();
      forecast.set_device(*model == 'S' ? "devices/gpu-0" : "devices/gpu-1");
      forecast.set_device_model(model);
      forecast.set_step_seconds(0.5);
    }
    Job job = store->jobs().submit(asked).value();
    job = store->jobs().start_attempt(job.uid, {device}, "n", "R", "m").value();
    AttemptUpdate started = update_of(job, 1);
    started.move = move_to(JobState::kRunning);
    ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(started)).ok());
    AttemptUpdate end = update_of(job, 2);
    end.times = v1::RunTimes();
    end.times->set_steps(100);
    end.times->set_step_seconds(0.1);
    end.move = move_to(JobState::kSucceeded);
    end.model = NewModel{"d-" + id, 400, 100, {}};
    ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(end)).ok());
  };
  finish_on("known", "devices/gpu-1");
  finish_on("either", "devices/gpu-2");
  const std::vector<ForecastOutcome> all = store->forecasts().outcomes(0).value();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].device_model, "Fast GPU");
}

TEST_F(StoreForecast, TooFewStepsAndFailedJobsAreIgnored) {
  finish("short", kOutcomeStepsMin - 1, 0.75);
  finish("failed", 100, 0.75, JobState::kFailed);
  EXPECT_TRUE(store->forecasts().outcomes(0).value().empty());
}

TEST_F(StoreForecast, TheWorkersPlanKeepsTheForecasts) {
  NewJob asked = new_job("kept");
  asked.plan.add_forecasts()->set_step_seconds(0.5);
  Job job = store->jobs().submit(asked).value();
  job = store->jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  AttemptUpdate started = update_of(job, 1);
  started.move = move_to(JobState::kRunning);
  started.plan = v1::RunPlan();
  started.plan->set_parameter_count(7);
  job = answer_of(store->jobs(), &JobStore::update_attempt, std::move(started)).value();
  EXPECT_EQ(job.plan.parameter_count(), 7);
  ASSERT_EQ(job.plan.forecasts_size(), 1);
  EXPECT_EQ(job.plan.forecasts(0).step_seconds(), 0.5);
}

TEST_F(StoreForecast, AJobThatIsNotRunningContinuesFromItsCheckpoint) {
  NewJob asked = new_job("killed");
  asked.plan.set_steps_total(1'000);
  v1::Forecast& forecast = *asked.plan.add_forecasts();
  forecast.set_device("devices/cpu");
  forecast.set_total_seconds(100);
  const Job job = run_job(*store, asked);
  std::mutex mu;
  JobBrief reported;
  store->observe([&](std::span<const JobChange> changes) {
    const std::lock_guard lock(mu);
    for (const JobChange& change : changes) {
      if (change.reschedules) reported = *change.reschedules;
    }
  });
  const auto read = [&] {
    JobBrief brief;
    EXPECT_TRUE(store->jobs().read_unfinished([&](const JobBrief& b) { brief = b; }).ok());
    return brief;
  };
  AttemptUpdate far = update_of(job, 2);
  far.step = 900;
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, far).ok());
  EXPECT_NEAR(read().on_cpu.rest_s, 10, 1e-9) << "while it runs";
  AttemptUpdate lost = update_of(job);
  lost.move = move_to(JobState::kQueued);
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, lost).ok());
  EXPECT_NEAR(read().on_cpu.rest_s, 100, 1e-9) << "it starts over";
  {
    const std::lock_guard lock(mu);
    EXPECT_NEAR(reported.on_cpu.rest_s, 100, 1e-9);
  }
  // The second attempt is killed after a checkpoint.
  const Job again = store->jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  AttemptUpdate started = update_of(again, 1);
  started.move = move_to(JobState::kRunning);
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, started).ok());
  AttemptUpdate saved = update_of(again, 2);
  saved.step = 700;
  v1::Event checkpoint;
  checkpoint.mutable_checkpoint()->set_step(600);
  saved.events.push_back(checkpoint);
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, saved).ok());
  lost = update_of(again);
  lost.move = move_to(JobState::kQueued);
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, lost).ok());
  EXPECT_NEAR(read().on_cpu.rest_s, 40, 1e-9);
}

TEST(Needs, OfARunningJobDependOnItsModelOfGpu) {
  v1::RunPlan plan;
  for (const auto& [device, seconds] : {std::pair("devices/gpu-0", 100), {"devices/gpu-1", 10}}) {
    v1::Forecast& forecast = *plan.add_forecasts();
    forecast.set_device(device);
    forecast.set_total_seconds(seconds);
  }
  JobBrief brief;
  brief.state = JobState::kRunning;
  brief.devices = {"devices/gpu-1"};
  set_needs(plan, {}, 0, brief);
  EXPECT_NEAR(brief.on_gpu.rest_s, 10, 1e-9);
  EXPECT_NEAR(brief.on_gpu.rest_high_s, 10, 1e-9);
  JobBrief waiting;
  set_needs(plan, {}, 0, waiting);
  EXPECT_NEAR(waiting.on_gpu.rest_high_s, 100, 1e-9) << "it may get either";
}

TEST(Remaining, IsForecastThenMeasured) {
  v1::RunPlan plan;
  plan.set_steps_total(1000);
  v1::Forecast& forecast = *plan.add_forecasts();
  forecast.set_device("devices/cpu");
  forecast.set_step_seconds(0.1);
  forecast.set_total_seconds(110);
  forecast.set_limited_by("compute");
  v1::Progress progress;
  progress.set_step(500);
  Remaining remaining = remaining_of(plan, "devices/cpu", progress);
  EXPECT_NEAR(remaining.seconds, 55, 1e-6);
  EXPECT_EQ(remaining.forecast_share, 0);

  progress.mutable_times()->set_steps(500);
  progress.mutable_times()->set_steps_seconds(100);
  progress.mutable_times()->set_step_seconds(0.2);
  progress.mutable_times()->set_step_seconds_low(0.19);
  progress.mutable_times()->set_step_seconds_high(0.21);
  remaining = remaining_of(plan, "devices/cpu", progress);
  EXPECT_NEAR(remaining.seconds, 500 * 0.21, 1e-6);  // evaluations count as forecast
  EXPECT_NEAR(remaining.forecast_share, 0.5, 1e-9);
  EXPECT_EQ(remaining.bound_share, 0) << "no bound is known";
  EXPECT_EQ(remaining.held_back_by, "compute");

  EXPECT_EQ(remaining_of(plan, "devices/cpu", progress, 2).held_back_by,
            "2 other jobs on the device");
  plan.mutable_forecasts(0)->set_step_seconds(0.19);
  EXPECT_EQ(remaining_of(plan, "devices/cpu", progress, 2).held_back_by, "compute")
      << "they hardly matter";
  plan.mutable_forecasts(0)->set_step_seconds(0.1);

  progress.mutable_times()->set_data_wait_seconds(60);
  progress.mutable_times()->set_evaluations(1);
  progress.mutable_times()->set_evaluations_seconds(50);
  remaining = remaining_of(plan, "devices/cpu", progress);
  EXPECT_NEAR(remaining.seconds, 500 * 0.3, 1e-6);
  EXPECT_EQ(remaining.held_back_by, "data");

  v1::Progress elsewhere;
  elsewhere.set_step(500);
  EXPECT_EQ(remaining_of(plan, "devices/gpu-0", elsewhere).seconds, 0);

  // With two models of GPU, a device without a forecast has only its own measured steps.
  for (const char* device : {"devices/gpu-0", "devices/gpu-1"}) {
    v1::Forecast& gpu = *plan.add_forecasts();
    gpu.set_device(device);
    gpu.set_step_seconds(0.01);
    gpu.set_total_seconds(std::string(device).ends_with('0') ? 20 : 12);
  }
  EXPECT_EQ(remaining_of(plan, "devices/gpu-2", elsewhere).seconds, 0);
  EXPECT_NEAR(remaining_of(plan, "devices/gpu-1", elsewhere).seconds, 6, 1e-6);
  *elsewhere.mutable_times() = progress.times();
  elsewhere.mutable_times()->set_evaluations(0);
  elsewhere.mutable_times()->set_evaluations_seconds(0);
  remaining = remaining_of(plan, "devices/gpu-2", elsewhere);
  EXPECT_NEAR(remaining.seconds, 500 * 0.2, 1e-6);
  EXPECT_EQ(remaining.forecast_share, 0);
}

TEST(Remaining, ReportsTheBoundShareAndItsParts) {
  v1::RunPlan plan;
  plan.set_steps_total(1000);
  v1::Forecast& forecast = *plan.add_forecasts();
  forecast.set_device("devices/cpu");
  forecast.set_step_seconds(0.1);
  forecast.set_total_seconds(110);
  forecast.set_limited_by("compute");
  forecast.set_step_bound_seconds(0.05);
  forecast.set_bound_by("memory bandwidth");
  v1::Progress progress;
  progress.set_step(500);
  progress.mutable_times()->set_steps(500);
  progress.mutable_times()->set_steps_seconds(60);
  progress.mutable_times()->set_step_seconds(0.125);
  const auto held_back_by = [&] {
    return remaining_of(plan, "devices/cpu", progress).held_back_by;
  };
  EXPECT_NEAR(remaining_of(plan, "devices/cpu", progress).bound_share, 0.4, 1e-9);
  EXPECT_EQ(held_back_by(), "memory bandwidth");
  forecast.set_limited_by("launches");
  EXPECT_EQ(held_back_by(), "launches");
  forecast.set_limited_by("exchanges");
  EXPECT_EQ(held_back_by(), "exchanges") << "the bound knows nothing of them";
  // The forecast named data loading, but the measurement contradicts it.
  forecast.set_limited_by("data");
  EXPECT_EQ(held_back_by(), "memory bandwidth");
  progress.mutable_times()->set_data_wait_seconds(30);
  EXPECT_EQ(held_back_by(), "data");
}

TEST_F(StoreForecast, ARunningJobsSharesOfItsForecastAndItsBoundAreMetrics) {
  NewJob asked = new_job("paced");
  asked.plan.set_steps_total(100);
  v1::Forecast& forecast = *asked.plan.add_forecasts();
  forecast.set_device("devices/cpu");
  forecast.set_step_seconds(0.5);
  forecast.set_step_bound_seconds(0.1);
  forecast.set_total_seconds(60);
  Job job = run_job(*store, asked);
  const auto beat = [&](int64_t step, double step_seconds) {
    v1::WorkerReport report;
    report.mutable_heartbeat()->set_step(step);
    report.mutable_heartbeat()->mutable_times()->set_steps(step);
    report.mutable_heartbeat()->mutable_times()->set_step_seconds(step_seconds);
    job = answer_of(store->jobs(), &JobStore::update_attempt,
                    update_from_report(job.uid, job.attempt, report))
              .value();
  };
  const auto values = [&](const std::string& key = "system/forecast_share") {
    std::vector<std::pair<int64_t, double>> all;
    for (const v1::Event& event : all_events(*store, job.uid)) {
      for (const v1::MetricSeries& s : event.metrics().series()) {
        if (s.key() == key) all.emplace_back(s.steps(0), s.values(0));
      }
    }
    return all;
  };
  using Values = std::vector<std::pair<int64_t, double>>;
  beat(5, 1);
  EXPECT_EQ(values(), Values()) << "too few steps to say";
  beat(30, 1);
  beat(31, 1.01);
  EXPECT_EQ(values(), (Values{{30, 0.5}})) << "told once, and when it changes";
  beat(40, 2);
  EXPECT_EQ(values(), (Values{{30, 0.5}, {40, 0.25}}));
  EXPECT_EQ(values("system/bound_share"), (Values{{30, 0.1}, {40, 0.05}}));
  EXPECT_EQ(job.progress.metrics().at("system/forecast_share"), 0.25);
  AttemptUpdate end = update_of(job, 2);
  end.move = move_to(JobState::kSucceeded);
  end.model = NewModel{"d", 400, 100, {}};
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(end)).ok());
  const Model model = store->models().find("default", "paced").value();
  EXPECT_TRUE(model.metrics.metrics().empty()) << "they are of the run, not of the model";
}

}  // namespace
}  // namespace trainyard::server
