// Rates and outcomes in the store.
#include <gtest/gtest.h>

#include "server/store/remaining.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreForecast : public testing::Test {
 protected:
  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);

  void reopen() {
    store.reset();
    store = open_or_die(small_options(directory.path()), clock);
  }
  /// A job with a forecast of its step, that took `step_seconds` for each of `steps`.
  Job finish(const std::string& id, int64_t steps, double step_seconds,
             JobState state = JobState::kSucceeded) {
    NewJob asked = new_job(id);
    asked.spec.mutable_resources()->set_threads(2);
    asked.plan.set_steps_total(steps + 1);
    v1::Forecast& forecast = *asked.plan.add_forecasts();
    forecast.set_device("devices/cpu");
    forecast.set_device_model("Fast CPU");
    forecast.set_graph("g1");
    forecast.set_basis("rates measured with 2 threads");
    forecast.set_step_seconds(0.5);
    forecast.set_total_seconds(60);
    const Job job = run_job(*store, asked);
    clock.pass(90'000'000);
    AttemptUpdate end = update_of(job, 2);
    end.step = steps + 1;
    end.times = v1::RunTimes();
    end.times->set_steps(steps);
    end.times->set_step_seconds(step_seconds);
    end.move = move_to(state);
    if (state == JobState::kSucceeded) end.model = NewModel{"d-" + id, 400, 100, {}};
    return store->jobs().update_attempt(std::move(end)).value();
  }
};

TEST_F(StoreForecast, RatesOfAKeyTakeThePlaceOfOlderOnes) {
  ASSERT_TRUE(store->forecasts().save_rates({{"cpu", 2, v1::Recipe::FP32}, 1, "old"}).ok());
  ASSERT_TRUE(store->forecasts().save_rates({{"cpu", 1, v1::Recipe::FP32}, 1, "one"}).ok());
  ASSERT_TRUE(store->forecasts().save_rates({{"cpu", 2, v1::Recipe::FP32}, 2, "new"}).ok());
  reopen();
  const std::vector<StoredRates> all = store->forecasts().rates().value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].rates, "one");
  EXPECT_EQ(all[1].rates, "new");
  EXPECT_EQ(all[1].time_us, 2);
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
  EXPECT_EQ(o.job, "tenants/default/jobs/first");
  EXPECT_EQ(o.steps, 100);
  EXPECT_EQ(o.step, 0.5);
  EXPECT_EQ(o.step_measured, 0.75);
  EXPECT_EQ(o.total, 60);
  EXPECT_NEAR(o.total_measured, 90, 1);
  finish("second", 100, 0.8);
  EXPECT_EQ(store->forecasts().outcomes(o.number).value().size(), 1u);
}

TEST_F(StoreForecast, TooFewStepsAndFailedJobsSayNothing) {
  finish("short", kOutcomeStepsMin - 1, 0.75);
  finish("failed", 100, 0.75, JobState::kFailed);
  EXPECT_TRUE(store->forecasts().outcomes(0).value().empty());
}

TEST_F(StoreForecast, TheWorkersPlanLeavesTheForecasts) {
  NewJob asked = new_job("kept");
  asked.plan.add_forecasts()->set_step_seconds(0.5);
  Job job = store->jobs().submit(asked).value();
  job = store->jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  AttemptUpdate started = update_of(job, 1);
  started.move = move_to(JobState::kRunning);
  started.plan = v1::RunPlan();
  started.plan->set_parameter_count(7);
  job = store->jobs().update_attempt(std::move(started)).value();
  EXPECT_EQ(job.plan.parameter_count(), 7);
  ASSERT_EQ(job.plan.forecasts_size(), 1);
  EXPECT_EQ(job.plan.forecasts(0).step_seconds(), 0.5);
}

TEST(Remaining, IsForecastAndThenMeasured) {
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
  EXPECT_NEAR(remaining.seconds, 500 * 0.21, 1e-6);  // evaluations as forecast
  EXPECT_NEAR(remaining.forecast_share, 0.5, 1e-9);
  EXPECT_EQ(remaining.held_back_by, "compute");

  progress.mutable_times()->set_data_wait_seconds(60);
  progress.mutable_times()->set_evaluations(1);
  progress.mutable_times()->set_evaluations_seconds(50);
  remaining = remaining_of(plan, "devices/cpu", progress);
  EXPECT_NEAR(remaining.seconds, 500 * 0.3, 1e-6);
  EXPECT_EQ(remaining.held_back_by, "data");

  v1::Progress elsewhere;
  elsewhere.set_step(500);
  EXPECT_EQ(remaining_of(plan, "devices/gpu-0", elsewhere).seconds, 0);
}

}  // namespace
}  // namespace trainyard::server
