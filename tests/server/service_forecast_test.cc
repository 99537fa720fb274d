// Tests of a whole daemon with measured rates: `batch_size: auto` gives the same result in every
// call and is stored once, and measured step times are reported next to forecasts.
#include <cmath>

#include "proto/convert/run.h"
#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

class ServiceForecast : public ServiceTest {
 protected:
  void SetUp() override {
    config_.measure_after_seconds = -1;  // switches measuring off
    ServiceTest::SetUp();
    make_dataset();
  }
  /// Restarts the daemon so that it measures rates; the fake worker reports them.
  void measure() {
    stop();
    config_.measure_after_seconds = 0;
    start();
    ASSERT_TRUE(eventually([&] {
      return plan(job_request("a-plan", "").spec()).run().forecasts(0).step_seconds() > 0;
    })) << plan(job_request("a-plan", "").spec()).run().forecasts(0).basis();
  }
  static v1::SubmitJobRequest auto_request(const std::string& id) {
    v1::SubmitJobRequest request = job_request(id, "");
    request.mutable_spec()->mutable_recipe()->set_batch_size(0);
    return request;
  }
  v1::Job accepted(const v1::SubmitJobRequest& request) {
    v1::Job job;
    const grpc::Status s = submit(request, &job);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return job;
  }
  v1::JobPlan plan(const v1::JobSpec& spec) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = spec;
    v1::JobPlan plan;
    const grpc::Status s = jobs_->PlanJob(context().get(), request, &plan);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return plan;
  }
  std::string refusal(const v1::SubmitJobRequest& request) {
    v1::Job job;
    const grpc::Status s = submit(request, &job);
    EXPECT_FALSE(s.ok());
    return reason_of(s) + " " + s.error_message();
  }
};

TEST_F(ServiceForecast, BatchSizeIsChosenByRatesAndStored) {
  measure();
  v1::SubmitJobRequest request = auto_request("chosen");
  request.set_validate_only(true);
  const v1::Job dry = accepted(request);
  const v1::JobPlan planned = plan(request.spec());
  request.set_validate_only(false);
  request.set_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad2");
  const v1::Job job = accepted(request);
  const v1::FitChoice& choice = job.plan().fit_choice();
  EXPECT_NE(choice.message().find("rows/s"), std::string::npos) << choice.message();
  EXPECT_NE(choice.message().find("learning rate is not scaled"), std::string::npos);
  EXPECT_EQ(job.spec().recipe().batch_size(), choice.batch_size());
  // A step of this network is nearly all start-up time of nodes, so the largest power of two is the
  // fastest choice.
  EXPECT_EQ(choice.batch_size(), 64) << choice.message();
  EXPECT_EQ(job.plan().steps_per_epoch(), 120 / choice.batch_size());
  for (const v1::FitChoice& other : {dry.plan().fit_choice(), planned.run().fit_choice()}) {
    EXPECT_EQ(other.SerializeAsString(), choice.SerializeAsString());
  }
  EXPECT_EQ(planned.spec().recipe().batch_size(), choice.batch_size());
  EXPECT_EQ(planned.run().steps_total(), job.plan().steps_total());
  EXPECT_EQ(accepted(request).uid(), job.uid()) << "a resend is not a new job";
  const v1::Job done = wait_for("chosen", v1::SUCCEEDED);
  EXPECT_EQ(done.plan().fit_choice().message(), choice.message()) << "a worker's plan replaced it";
}

TEST_F(ServiceForecast, APlanComparesTheCpuWithGpusThatThisServerDoesNotHave) {
  const auto compared = [&](const std::string& gpu, v1::JobPlan* plan) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = job_request("compared", "").spec();
    request.add_compared_gpus(gpu);
    request.add_compared_gpus(gpu);  // has no effect
    return jobs_->PlanJob(context().get(), request, plan);
  };
  v1::JobPlan unmeasured;
  ASSERT_TRUE(compared("t4", &unmeasured).ok());
  ASSERT_EQ(unmeasured.gpu_comparisons_size(), 1);
  EXPECT_EQ(unmeasured.gpu_comparisons(0).verdict(), v1::GpuComparison::VERDICT_UNSPECIFIED);
  EXPECT_EQ(unmeasured.gpu_comparisons(0).advice(),
            "Not known: the CPU's time is unknown: this server does not measure the speed of "
            "devices.");
  config_.cpu_price_per_hour = 0.5;
  config_.gpu_price_per_hour = 2;
  measure();
  v1::JobPlan all;
  ASSERT_TRUE(compared("all", &all).ok());
  EXPECT_GT(all.gpu_comparisons_size(), 10);
  for (const v1::GpuComparison& row : all.gpu_comparisons()) {
    EXPECT_NE(row.verdict(), v1::GpuComparison::VERDICT_UNSPECIFIED) << row.advice();
    EXPECT_LT(row.speedup_low(), row.speedup_high()) << row.gpu();
    EXPECT_NEAR(row.cost_share() * row.speedup(), 4, 1e-9) << "a GPU hour costs four CPU hours";
  }
  EXPECT_NE(all.gpu_comparisons_basis().find("costs 4 hours of the CPU by the configured prices"),
            std::string::npos)
      << all.gpu_comparisons_basis();
  v1::JobPlan none;
  const grpc::Status refused = compared("voodoo2", &none);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(refused.error_message().find("compared_gpus[0]: 'voodoo2' is not known, expected one"),
            std::string::npos)
      << refused.error_message();
}

TEST_F(ServiceForecast, WithoutRatesItIsTheDefault) {
  const v1::Job job = accepted(auto_request("no-rates"));
  EXPECT_EQ(job.spec().recipe().batch_size(), 64);
  EXPECT_EQ(job.plan().fit_choice().message(),
            "batch_size auto: 64 rows, the default: this server does not measure the speed of "
            "devices. The learning "
            "rate is not scaled with it");
  EXPECT_FALSE(accepted(job_request("named", "")).plan().has_fit_choice());
}

TEST_F(ServiceForecast, ErrorsNameTheSpecAndNotATrialSize) {
  v1::SubmitJobRequest request = auto_request("wrong");
  request.mutable_spec()->mutable_recipe()->set_batch_size(-4);
  EXPECT_NE(refusal(request).find("-4 is out of range, expected at least 1, or auto"),
            std::string::npos)
      << refusal(request);
  request = auto_request("wrong");
  request.mutable_spec()->mutable_recipe()->set_validation_split(0.95);
  const std::string said = refusal(request);
  EXPECT_NE(said.find("recipe.validation_split"), std::string::npos) << said;
  EXPECT_EQ(said.find("batch_size"), std::string::npos) << said;
}

TEST_F(ServiceForecast, BatchSizeIsAMultipleOfMicroBatches) {
  v1::SubmitJobRequest request = auto_request("micro");
  request.mutable_spec()->mutable_recipe()->set_accumulate_steps(4);
  const v1::Job job = accepted(request);
  EXPECT_EQ(job.spec().recipe().batch_size(), 64);
  EXPECT_EQ(job.spec().recipe().accumulate_steps(), 4);
}

TEST_F(ServiceForecast, DevicesShowMeasuredAndForecastStepTimes) {
  measure();
  for (const char* id : {"slow-one", "new-one"}) {
    v1::SubmitJobRequest request = job_request(id, "wait_for_stop");
    auto& labels = *request.mutable_spec()->mutable_labels();
    labels["steps"] = "24";  // as many steps as in its plan
    if (std::string(id) == "slow-one") labels["step_seconds"] = "1";
    accepted(request);
  }
  wait_for("new-one", v1::RUNNING);
  ASSERT_TRUE(eventually([&] { return get("slow-one").progress().forecast_share() > 0; }));
  v1::ListDevicesResponse list;
  ASSERT_TRUE(system_->ListDevices(context().get(), {}, &list).ok());
  ASSERT_EQ(list.devices(0).uses_size(), 2);
  const v1::DeviceUse& one = list.devices(0).uses(0);
  const v1::Job job = get("slow-one");
  EXPECT_EQ(one.forecast_share(), job.progress().forecast_share());
  EXPECT_GT(one.forecast_share(), 0);
  EXPECT_LT(one.forecast_share(), 0.1) << "a step is forecast to take about a millisecond";
  EXPECT_EQ(one.held_back_by(), "1 other job on the device");
  EXPECT_EQ(job.progress().held_back_by(), one.held_back_by());
  EXPECT_EQ(job.progress().metrics().at("system/forecast_share"), one.forecast_share());
  EXPECT_GT(one.bound_share(), 0);
  EXPECT_LT(one.bound_share(), one.forecast_share());
  EXPECT_EQ(job.progress().bound_share(), one.bound_share());
  EXPECT_EQ(job.progress().metrics().at("system/bound_share"), one.bound_share());
  EXPECT_EQ(list.devices(0).uses(1).forecast_share(), 0) << "it has not told its times";
  v1::Job cancelled;
  for (const char* id : {"slow-one", "new-one"}) ASSERT_TRUE(cancel(id, &cancelled).ok());
}

/// Fixture with three GPUs of one model.
class ServiceGpuBatch : public ServiceForecast {
 protected:
  void SetUp() override {
    for (int i = 0; i < 3; ++i) {
      Device gpu;
      gpu.name = "devices/gpu-" + std::to_string(i);
      gpu.kind = DeviceKind::kGpu;
      gpu.model = "H";
      gpu.uuid = "GPU-" + std::to_string(i);
      gpu.memory_bytes = int64_t{4} << 30;
      gpus_.push_back(gpu);
    }
    ServiceForecast::SetUp();
  }
};

TEST_F(ServiceGpuBatch, BatchSizeIsAMultipleOfGpus) {
  for (const auto& [gpus, rows] : {std::pair(1, 64), std::pair(2, 64), std::pair(3, 48)}) {
    v1::SubmitJobRequest request = auto_request("gpus");
    request.mutable_spec()->mutable_resources()->set_device(v1::Resources::GPU);
    request.mutable_spec()->mutable_resources()->set_gpus(gpus);
    request.set_validate_only(true);
    const v1::Job job = accepted(request);
    EXPECT_EQ(job.spec().recipe().batch_size(), rows) << job.plan().fit_choice().message();
    EXPECT_EQ(plan(request.spec()).spec().recipe().batch_size(), rows);
  }
}

/// Fixture with a CPU of little memory and a network whose activations need more than its weights.
class ServiceSmallBatch : public ServiceForecast {
 protected:
  void SetUp() override {
    config_.cpu_memory_bytes_max = kBytesMax;
    ServiceForecast::SetUp();
  }
  static constexpr int64_t kBytesMax = 272'000;
  static v1::SubmitJobRequest deep_request(const std::string& id, int64_t batch_size = 0) {
    v1::SubmitJobRequest request = auto_request(id);
    request.mutable_spec()->mutable_recipe()->set_batch_size(batch_size);
    v1::ModelSpec& model = *request.mutable_spec()->mutable_model();
    for (int i = 0; i < 16; ++i) model.mutable_mlp()->add_hidden(32);
    return request;
  }
};

TEST_F(ServiceSmallBatch, ChangesThatMakeAJobFitHaveAForecastCost) {
  v1::SubmitJobRequest request = deep_request("costs", 80);
  request.set_validate_only(true);
  const std::string work = accepted(request).plan().fit_choice().message();
  EXPECT_EQ(work.find("by forecast"), work.npos) << work << ": no rates have been measured";
  measure();
  const v1::Job job = accepted(request);
  const v1::FitChoice& choice = job.plan().fit_choice();
  ASSERT_GT(choice.step_seconds(), choice.step_seconds_as_written()) << choice.message();
  const double more = choice.step_seconds() / choice.step_seconds_as_written() - 1;
  EXPECT_NE(choice.message().find("; a step takes about " +
                                  std::to_string(std::lround(100 * more)) + "% longer by forecast"),
            choice.message().npos)
      << choice.message();
  EXPECT_EQ(plan(request.spec()).run().fit_choice().SerializeAsString(),
            choice.SerializeAsString());
}

TEST_F(ServiceSmallBatch, ShardingPlansAreRankedByRatesAndSubmitUsesTheChosenOne) {
  measure();
  v1::PlanJobRequest request;
  *request.mutable_spec() = deep_request("ranked", 80).spec();
  request.set_sharding_plans(true);
  v1::JobPlan plan;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &plan).ok());
  ASSERT_GT(plan.sharding_plans_size(), 2);
  EXPECT_NE(plan.sharding_plans_basis().find(
                "Steps are forecast from the rates measured on devices/cpu."),
            std::string::npos)
      << plan.sharding_plans_basis();
  const v1::ShardingRow& chosen = plan.sharding_plans(0);
  ASSERT_EQ(chosen.verdict(), v1::ShardingRow::CHOSEN) << chosen.message();
  EXPECT_FALSE(chosen.as_written());
  double before = 0;
  for (const v1::ShardingRow& row : plan.sharding_plans()) {
    if (row.verdict() != v1::ShardingRow::CHOSEN && row.verdict() != v1::ShardingRow::FITS)
      continue;
    EXPECT_GT(row.step_seconds(), row.step_seconds_low());
    EXPECT_LT(row.step_seconds(), row.step_seconds_high());
    if (row.verdict() == v1::ShardingRow::CHOSEN) continue;
    EXPECT_GE(row.step_seconds(), before) << "they are ranked";
    EXPECT_GE(row.step_seconds(), chosen.step_seconds_low()) << "it could be told apart";
    before = row.step_seconds();
  }
  EXPECT_EQ(plan.run().fit_choice().step_seconds(), chosen.step_seconds());
  v1::SubmitJobRequest submitted = deep_request("ranked", 80);
  submitted.set_validate_only(true);
  for (const v1::JobSpec& spec : {plan.spec(), accepted(submitted).spec()}) {
    EXPECT_EQ(std::max<int64_t>(1, spec.recipe().accumulate_steps()), chosen.accumulate_steps());
    EXPECT_EQ(std::max(v1::Recipe::NONE, spec.recipe().recompute()), chosen.recompute());
  }
}

TEST_F(ServiceSmallBatch, ABatchThatFitsAsWrittenIsPreferred) {
  const v1::Job job = accepted(deep_request("small"));
  const v1::FitChoice& choice = job.plan().fit_choice();
  EXPECT_LT(choice.batch_size(), 64) << choice.message();
  EXPECT_LE(bytes_on_cpu(job.plan().memory()), kBytesMax);
  EXPECT_NE(choice.message().find("the most up to 64 that fit"), std::string::npos)
      << choice.message();
  EXPECT_EQ(choice.accumulate_steps(), 0);
  EXPECT_EQ(choice.recompute(), v1::Recipe::RECOMPUTE_UNSPECIFIED);
  EXPECT_EQ(plan(deep_request("small").spec()).run().fit_choice().batch_size(),
            choice.batch_size());
  v1::SubmitJobRequest more = deep_request("more");
  more.mutable_spec()->mutable_recipe()->set_batch_size(2 * choice.batch_size());
  more.mutable_spec()->mutable_recipe()->set_recompute(v1::Recipe::NONE);
  more.mutable_spec()->mutable_recipe()->set_accumulate_steps(1);
  EXPECT_EQ(refusal(more).find("RESOURCES_IMPOSSIBLE"), 0u);
}

}  // namespace
}  // namespace trainyard::server
