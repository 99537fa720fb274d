// Tests of when the forecaster measures rates, which data its forecasts use, and how it describes
// them.
#include "server/forecast/forecaster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "server/inventory/fake_inventory.h"
#include "server/store/wait_for.h"
#include "tests/server/forecast_samples.h"
#include "tests/server/store_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

/// Returns the rates, as JSON, of a device on which every node takes `seconds`.
std::string rates_text(double seconds) {
  DeviceRates rates = product_rates(seconds);
  rates.watts = 100;
  return to_json_text(rates);
}

class ForecasterTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()));
  FakeInventory inventory{devices()};
  std::atomic<int> measured = 0;

  static Devices devices() {
    Device cpu;
    cpu.name = "devices/cpu";
    cpu.model = "Fast CPU";
    cpu.cores = 2;
    Device gpu;
    gpu.name = "devices/gpu-0";
    gpu.kind = DeviceKind::kGpu;
    gpu.model = "GPU 9";
    gpu.overhead_bytes = 1000;
    return {{cpu, gpu}, ""};
  }
  std::unique_ptr<Forecaster> open(int64_t idle_us = 0) {
    auto forecaster = std::make_unique<Forecaster>(*store, inventory,
                                                   ForecasterOptions{.threads_per_job = 2,
                                                                     .cpu_price_per_hour = 3.6,
                                                                     .gpu_price_per_hour = 36,
                                                                     .idle_us = idle_us,
                                                                     .build = "b1"});
    EXPECT_TRUE(forecaster->open().ok());
    return forecaster;
  }
  void start(Forecaster& forecaster, double cpu_seconds = 1, double gpu_seconds = 0.05) {
    forecaster.start(
        [=, this](const Device& device, int32_t, v1::Recipe::Precision, Done<std::string> done) {
          done(rates_text(device.kind == DeviceKind::kCpu ? cpu_seconds : gpu_seconds));
          ++measured;
        });
  }
  static ForecastQuery query(int64_t steps = 100) {
    ForecastQuery q;
    q.key = std::to_string(steps);
    q.cpu = q.gpu = std::make_shared<RunWork>(work_of_products(steps));
    q.threads = 2;
    q.plan_bytes = 5000;
    q.precision = v1::Recipe::TF32;
    return q;
  }
  /// Waits until `count` of the forecasts have a value and returns all of them.
  std::vector<v1::Forecast> forecast_after(Forecaster& forecaster, int count) {
    std::vector<v1::Forecast> all;
    EXPECT_TRUE(eventually([&] {
      all = forecaster.forecast(query(), devices());
      return std::ranges::count_if(
                 all, [](const v1::Forecast& f) { return f.step_seconds() > 0; }) == count;
    })) << "no "
        << count << " forecasts";
    return all;
  }
};

TEST_F(ForecasterTest, WithoutRatesItSaysWhy) {
  const auto forecaster = open();
  const std::vector<v1::Forecast> all = forecaster->forecast(query(), devices());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].device(), "devices/cpu");
  EXPECT_EQ(all[0].step_seconds(), 0);
  EXPECT_NE(all[0].basis().find("the speed with 2 threads"), std::string::npos) << all[0].basis();
  EXPECT_EQ(all[1].memory_bytes(), 6000);
  EXPECT_EQ(forecast_advice(all), "");
  EXPECT_NE(forecaster->describe(devices().devices[0]).missing(), "");

  const auto never = open(-1);
  EXPECT_NE(never->forecast(query(), devices())[0].basis().find("does not measure the speed"),
            std::string::npos);
}

TEST_F(ForecasterTest, RatesAreMeasuredOnceAndKept) {
  {
    const auto forecaster = open();
    start(*forecaster);
    const std::vector<v1::Forecast> all = forecast_after(*forecaster, 2);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_NEAR(all[0].step_seconds(), 1, 0.05);
    EXPECT_NEAR(all[0].total_seconds(), 100, 5);
    EXPECT_NEAR(all[0].cost(), 0.1, 0.005);  // 100 s at a price of 3.6 an hour
    EXPECT_NEAR(all[0].energy_joules(), 100 * 100, 500);
    EXPECT_EQ(all[0].basis(), "speed measured with 2 threads");
    EXPECT_NEAR(all[1].step_seconds(), 0.05, 0.003);
    EXPECT_EQ(forecast_advice(all),
              "GPU (GPU 9): 20x faster for 0.5x the price; on the CPU this takes 100 s.");
    EXPECT_EQ(measured, 2);
    EXPECT_EQ(forecaster->describe(devices().devices[0]).rates_size(), 1);
    forecaster->stop();
  }
  ASSERT_TRUE(eventually([&] { return store->forecasts().rates()->size() >= 2; }));
  const auto again = open();
  EXPECT_NEAR(again->forecast(query(), devices())[0].step_seconds(), 1, 0.05);
  // Two GPUs exchange so many bytes per step that the assumed link needs two seconds.
  ForecastQuery linked = query();
  linked.key = "linked";
  linked.gpus = 2;
  linked.cpu = nullptr;
  RunWork work = work_of_products(100);
  work.step.processor = Processor::kGpu;
  work.step.sent_exposed = {1, 2 * kAssumedLink.bytes_per_second};
  linked.gpu = std::make_shared<RunWork>(work);
  const v1::Forecast two = again->forecast(linked, devices()).at(0);
  EXPECT_NEAR(two.step_seconds(), 2.05, 0.01);
  EXPECT_EQ(two.limited_by(), "exchanges");
  EXPECT_EQ(two.basis(), "speed measured on this device; " + assumed_link(work.step));
  EXPECT_NEAR(again->step_time(devices().devices[1], 2, v1::Recipe::TF32, work)->seconds, 2.05,
              0.01);
  Devices other = devices();
  other.devices[0].cores = 3;  // another number of cores means another machine
  ForecastQuery q = query();
  q.key = "other";
  EXPECT_EQ(again->forecast(q, other)[0].step_seconds(), 0);
}

TEST_F(ForecasterTest, NothingIsMeasuredWhileAJobRuns) {
  const Job job = store->jobs().submit(new_job("waits")).value();
  const auto forecaster = open();
  start(*forecaster);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(measured, 0);
  ASSERT_TRUE(store->jobs().request_cancel("default", "waits").ok());
  forecast_after(*forecaster, 2);
}

TEST_F(ForecasterTest, ADisturbedMeasurementIsRepeated) {
  const auto forecaster = open();
  std::atomic<int> calls = 0;
  forecaster->start([&](const Device&, int32_t, v1::Recipe::Precision, Done<std::string> done) {
    if (++calls == 1) {
      ASSERT_TRUE(store->jobs().submit(new_job("disturbs")).ok());
      ASSERT_TRUE(store->jobs().request_cancel("default", "disturbs").ok());
      return done(rates_text(50));
    }
    done(rates_text(1));
  });
  EXPECT_NEAR(forecast_after(*forecaster, 2)[0].step_seconds(), 1, 0.05);
  EXPECT_EQ(calls, 3);
}

TEST_F(ForecasterTest, AFailureIsReported) {
  const auto forecaster = open();
  forecaster->start([](const Device&, int32_t, v1::Recipe::Precision, Done<std::string> done) {
    done(make_error(ErrorCode::kInternal, "WORKER_LOST", "the worker fell over"));
  });
  int asked = 0;
  EXPECT_TRUE(eventually([&] {
    ForecastQuery q = query();
    q.key = std::to_string(++asked);
    return forecaster->forecast(q, devices())[0].basis().find("fell over") != std::string::npos;
  })) << "the failure is not told";
}

TEST_F(ForecasterTest, ADrainedGpuIsNotMeasured) {
  Devices drained = devices();
  drained.devices[1].schedulable = false;
  inventory.set(drained);
  const auto forecaster = open();
  std::atomic<bool> used = false;
  forecaster->start(
      [&](const Device& device, int32_t, v1::Recipe::Precision, Done<std::string> done) {
        if (device.kind == DeviceKind::kGpu) used = true;
        done(rates_text(1));
      });
  const auto described = [&] {
    return forecaster->forecast(query(), devices())[1].basis().find("can be used now") !=
           std::string::npos;
  };
  EXPECT_TRUE(eventually(described));
  EXPECT_FALSE(used);
}

TEST_F(ForecasterTest, FinishedJobsOfTheGraphCorrectLaterForecasts) {
  const auto forecaster = open();
  start(*forecaster);
  const std::vector<v1::Forecast> before = forecast_after(*forecaster, 2);
  const auto finish = [&](const std::string& id) {
    NewJob asked = new_job(id);
    asked.spec.mutable_resources()->set_threads(2);
    asked.plan.set_precision(v1::Recipe::TF32);
    *asked.plan.add_forecasts() = before[0];
    const Job job = run_job(*store, asked);
    AttemptUpdate end = update_of(job, 2);
    end.times = v1::RunTimes();
    end.times->set_steps(100);
    end.times->set_step_seconds(1.25);
    end.move = move_to(JobState::kSucceeded);
    end.model = NewModel{"d", 400, 100, {}};
    EXPECT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(end)).ok());
  };
  finish("done");
  const std::vector<v1::Forecast> after = forecaster->forecast(query(), devices());
  EXPECT_EQ(after[0].step_seconds(), 1.25);
  EXPECT_EQ(after[0].basis(), "1 finished job of this graph");
  EXPECT_NEAR(after[1].step_seconds(), 0.05, 0.003);  // the other device
  const v1::DeviceForecasts described = forecaster->describe(devices().devices[0]);
  EXPECT_EQ(described.jobs(), 1);
  EXPECT_NEAR(described.error_median(), 0.2, 0.02);
  ASSERT_EQ(described.newest_size(), 1);
  EXPECT_EQ(described.newest(0).step_seconds_measured(), 1.25);
  finish("second");
  finish("third");
  EXPECT_EQ(forecaster->forecast(query(), devices())[0].basis(), "3 finished jobs of this graph");
}

TEST(Advice, NamesTheFasterDevice) {
  v1::Forecast cpu;
  cpu.set_device("devices/cpu");
  cpu.set_total_seconds(21'600);
  cpu.set_total_seconds_low(20'000);
  cpu.set_total_seconds_high(24'000);
  EXPECT_EQ(forecast_advice({cpu}), "On the CPU this takes 6 h (6 h to 7 h).");
  v1::Forecast gpu;
  gpu.set_device("devices/gpu-0");
  gpu.set_device_model("G");
  gpu.set_total_seconds(43'200);
  EXPECT_EQ(forecast_advice({cpu, gpu}), "CPU: 2x faster than the GPU (G); it takes 6 h.");
  gpu.set_total_seconds(1'000);
  EXPECT_EQ(forecast_advice({cpu, gpu}), "GPU (G): 22x faster; on the CPU this takes 6 h.");
}

}  // namespace
}  // namespace trainyard::server
