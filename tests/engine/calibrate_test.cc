// The rates that calibration measures suffice to forecast every preset.
#include "src/calibration/calibrate.h"

#include <gtest/gtest.h>

#include "src/forecast/forecast.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/planning/job_plan.h"
#include "tests/support/small_presets.h"

namespace trainyard {
namespace {

TEST(Calibrate, EveryPresetCanBeForecast) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  const Result<DeviceRates> measured = calibrate(*cpu, {.seconds_max = 0});
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_GT(measured->prepare_seconds, 0);
  const Result<DeviceRates> sent = parse_rates(to_json_text(*measured));
  ASSERT_TRUE(sent.ok()) << sent.error().message;
  const RateModel rates(*sent);
  EXPECT_GT(rates.flops_per_second(), 1e8);
  EXPECT_GT(rates.bytes_per_second(), 1e8);
  for (const testing::SmallPreset& small : testing::small_presets()) {
    ModelSpec model;
    model.preset = small.name;
    model.parameters = small.parameters;
    Recipe recipe;
    recipe.steps = 10;
    recipe.batch_size = 4;
    recipe.context_length = small.context_length;
    DatasetSchema schema = small.schema;
    schema.train_rows = 1000;
    const Result<RunPlan> plan = plan_run(model, recipe, schema);
    ASSERT_TRUE(plan.ok()) << small.name << ": " << plan.error().message;
    const Result<RunForecast> run = forecast_run(plan->work, rates);
    ASSERT_TRUE(run.ok()) << small.name << ": " << run.error().message;
    EXPECT_GT(run->step.seconds, 1e-6) << small.name;
    EXPECT_LT(run->step.seconds, 10) << small.name;
  }
}

TEST(Calibrate, StopsOnRequest) {
  std::stop_source stop;
  stop.request_stop();
  const std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  const Result<DeviceRates> measured = calibrate(*cpu, {}, stop.get_token());
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace trainyard
