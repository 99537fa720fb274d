// The tests catch a plan of another recipe than the job gets; a job that is changed although it
// fits, or stays unchanged although a change would make it fit; needless queries for the memory of
// running jobs; a verdict that omits the kernels' workspace.
#include "src/planning/planner.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/planning_support.h"

namespace trainyard {
namespace {

const PlanOptions kWhereItStarts = {.devices = PlannedFor::kWhereItStarts};

PlannedRun planned_on(const Machine& machine, const JobToPlan& job,
                      const PlanOptions& options = {}) {
  return plan_on(machine, job, table(), std::nullopt, options).value();
}
MemoryFit judged(const Machine& machine, const JobToPlan& job, PlannedRun& planned,
                 std::optional<int64_t> workspace_bytes = std::nullopt) {
  return judge_memory(machine, job, table(), workspace_bytes, planned).value();
}
int64_t whole() {
  return bytes_with(job_of(1), [](Recipe&) {});
}
int64_t recomputed() {
  return bytes_with(job_of(1), [](Recipe& r) { r.recompute = Recompute::kFull; });
}

TEST(Planner, AJobThatFitsIsNotChanged) {
  const Machine machine = machine_with(1, 64 * kMiB);
  PlannedRun planned = planned_on(machine, job_of(1));
  EXPECT_FALSE(planned.choice.has_value());
  EXPECT_EQ(sharding_of(planned.recipe), sharding_of(job_of(1).recipe));
  EXPECT_EQ(planned.device.device, "devices/gpu-0");
  EXPECT_EQ(planned.traits.processor, Processor::kGpu);
  EXPECT_EQ(planned.plan_bytes(), whole() + planned.plan.run.dataset_bytes);
  EXPECT_GT(planned.plan.run.dataset_bytes, 0) << "the GPU holds the rows";
  EXPECT_TRUE(planned.plan.layers.empty());
  EXPECT_TRUE(judged(machine, job_of(1), planned).fits);
}

TEST(Planner, AChoiceIsWrittenIntoTheRecipeAndPlanned) {
  const Machine machine = machine_with(1, recomputed());
  PlannedRun planned = planned_on(machine, job_of(1));
  ASSERT_TRUE(planned.choice.has_value());
  ASSERT_TRUE(planned.choice->recompute.has_value());
  EXPECT_EQ(planned.recipe.recompute, planned.choice->recompute);
  JobToPlan chosen = job_of(1);
  chosen.recipe = planned.recipe;
  EXPECT_EQ(planned.plan_bytes(), plan_of(chosen).memory.total());
  EXPECT_EQ(planned.plan.run.dataset_bytes, 0) << "its rows stay on the host";
  EXPECT_EQ(planned.choice->bytes_as_written, whole());
  EXPECT_NE(planned.choice->message.find("; a step computes "), std::string::npos)
      << "what it costs: " << planned.choice->message;
  EXPECT_TRUE(judged(machine, job_of(1), planned).fits);
}

TEST(Planner, FieldsOfTheSpecAreNotChosen) {
  JobToPlan named = job_of(1);
  named.free = {};
  const Machine machine = machine_with(1, recomputed());
  PlannedRun planned = planned_on(machine, named);
  EXPECT_FALSE(planned.choice.has_value());
  const MemoryFit fit = judged(machine, named, planned);
  EXPECT_FALSE(fit.fits);
  EXPECT_EQ(fit.bytes_short, whole() - recomputed());
  EXPECT_EQ(fit.bytes_needed, whole());
  EXPECT_EQ(fit.bytes_available, recomputed());
  EXPECT_NE(fit.message.find("; recipe.recompute: "), std::string::npos) << fit.message;
  EXPECT_NE(fit.advice.recompute, Recompute::kNone);

  PlannedRun as_written = planned_on(machine, job_of(1), {.as_written = true});
  EXPECT_FALSE(as_written.choice.has_value());
  EXPECT_EQ(judged(machine, job_of(1), as_written).message, fit.message);
}

// If a GPU job leaves no room for the resident dataset, its rows come from the host.
TEST(Planner, RowsStayOnTheHostBeforeAnythingElseChanges) {
  const Machine machine = machine_with(1, whole() + 1);
  PlannedRun planned = planned_on(machine, job_of(1), kWhereItStarts);
  EXPECT_FALSE(planned.choice.has_value());
  EXPECT_EQ(planned.plan.run.dataset_bytes, 0);
  ASSERT_EQ(planned.plan.warnings.size(), 1u);
  EXPECT_NE(planned.plan.warnings[0].find("batches are copied from the host"), std::string::npos);
  judged(machine, job_of(1), planned, 1);
  EXPECT_EQ(planned.plan.warnings.size(), 1u) << "that is said once";
}

TEST(Planner, ThePlanIsValidForEveryEligibleDevice) {
  const Machine machine = machine_with(1, 64 * kMiB);
  JobToPlan any = job_of(0);
  const PlannedRun everywhere = planned_on(machine, any);
  EXPECT_EQ(everywhere.traits.alignment, kCudaAlignment);
  EXPECT_EQ(everywhere.traits.processor, Processor::kCpu) << "which needs more memory";
  EXPECT_GT(everywhere.plan.run.dataset_bytes, 0) << "on a GPU, if it gets that";
  EXPECT_EQ(planned_on(machine, any, kWhereItStarts).traits.processor, Processor::kGpu);
  any.wish = DeviceWish::kCpu;
  const PlannedRun cpu = planned_on(machine, any);
  EXPECT_EQ(cpu.traits.alignment, kHostAlignment);
  EXPECT_EQ(cpu.plan.run.dataset_bytes, 0);
}

TEST(Planner, RunningJobsAreQueriedOnlyIfNeeded) {
  Machine machine = machine_with(1, 64 * kMiB + 2 * whole());
  const int64_t used = 64 * kMiB + 2 * whole() - recomputed();
  machine.devices.devices[1].memory_used_bytes = used;
  int asked = 0;
  machine.job_memory = [&]() -> Result<std::vector<JobMemory>> {
    ++asked;
    return std::vector<JobMemory>{{"devices/gpu-0", used}};
  };
  EXPECT_FALSE(planned_on(machine, job_of(1)).choice.has_value()) << "their memory will be free";
  EXPECT_GT(asked, 0);
  asked = 0;
  machine.devices.devices[1].memory_used_bytes = 0;
  planned_on(machine, job_of(1));
  EXPECT_EQ(asked, 0);
  machine.devices.devices[1].memory_bytes = recomputed();
  machine.job_memory = []() -> Result<std::vector<JobMemory>> {
    return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR", "not now");
  };
  EXPECT_EQ(plan_on(machine, job_of(1), table(), std::nullopt, {}).error().reason, "STORAGE_ERROR");
}

TEST(Planner, TheWorkspaceCountsOnceItIsKnown) {
  const int64_t rows = planned_on(machine_with(1, 64 * kMiB), job_of(1)).plan.run.dataset_bytes;
  const Machine machine = machine_with(1, whole() + rows + kMiB);
  PlanOptions options = kWhereItStarts;
  options.all_shardings = true;
  PlannedRun planned = planned_on(machine, job_of(1), options);
  EXPECT_GT(planned.shardings.plans.rows.size(), 1u);
  EXPECT_TRUE(judged(machine, job_of(1), planned).fits);
  EXPECT_EQ(planned.shardings.basis.find("workspace"), std::string::npos);
  EXPECT_EQ(planned.plan.run.dataset_bytes, rows);

  EXPECT_TRUE(judged(machine, job_of(1), planned, kMiB + 1).fits) << "without its rows";
  EXPECT_EQ(planned.plan.run.dataset_bytes, 0);
  EXPECT_NE(planned.shardings.basis.find("workspace, which for the planned job is 1 MiB."),
            std::string::npos)
      << planned.shardings.basis;
  const MemoryFit fit = judged(machine, job_of(1), planned, kMiB + rows + 1);
  EXPECT_FALSE(fit.fits);
  EXPECT_EQ(fit.bytes_short, 1);
  EXPECT_EQ(planned.plan_bytes(), whole() + kMiB + rows + 1);
}

TEST(Planner, AnOpenBatchIsChosenByRates) {
  JobToPlan job = job_of(1);
  job.batch_is_open = true;
  job.recipe.batch_size = 1;
  Machine machine = machine_with(1, 64 * kMiB);
  const PlannedRun unknown_rates = planned_on(machine, job);
  EXPECT_EQ(unknown_rates.recipe.batch_size, 64);
  EXPECT_EQ(unknown_rates.choice->batch_size, 64);
  EXPECT_NE(unknown_rates.choice->message.find("this server measures no rates"), std::string::npos);
  machine.step_time = [](const Device& device, const RunWork& work) -> Result<TimeRange> {
    EXPECT_EQ(device.name, "devices/gpu-0");
    const double seconds = 0.001 + 1e-5 * static_cast<double>(work.batch_size);
    return TimeRange{seconds, seconds, seconds};
  };
  const PlannedRun by_rates = planned_on(machine, job);
  EXPECT_EQ(by_rates.recipe.batch_size, 512) << by_rates.choice->message;
  EXPECT_EQ(by_rates.plan.run.work.batch_size, 512);

  // The chosen batch size is too large for the memory, so the recipe is then changed to fit.
  job.recipe.batch_size = 512;
  machine.devices.devices[1].memory_bytes = recomputed();
  const PlannedRun both = planned_on(machine, job);
  EXPECT_EQ(both.choice->batch_size, 512);
  EXPECT_TRUE(both.choice->message.starts_with("batch_size auto: 512 rows, the smallest"));
  EXPECT_NE(both.choice->message.find(". recipe."), std::string::npos) << both.choice->message;
}

TEST(Planner, PlansMayComeFromACache) {
  const JobToPlan job = job_of(1);
  std::vector<Recompute> asked;
  PlanOptions options;
  options.find_run_plan = [&](const Recipe& recipe,
                              DeviceTraits traits) -> Result<std::shared_ptr<const RunPlan>> {
    asked.push_back(recipe.recompute);
    JobToPlan with = job;
    with.recipe = recipe;
    return std::make_shared<const RunPlan>(plan_of(with, traits));
  };
  planned_on(machine_with(1, 64 * kMiB), job, options);
  EXPECT_EQ(asked, (std::vector<Recompute>{Recompute::kNone}));
  asked.clear();
  const PlannedRun chosen = planned_on(machine_with(1, recomputed()), job, options);
  const Recompute now = chosen.recipe.recompute;
  EXPECT_EQ(asked, (std::vector<Recompute>{Recompute::kNone, Recompute::kNone, now, now}));
}

TEST(Planner, LayersAndADumpAreComputedOnRequest) {
  PlanOptions options = kWhereItStarts;
  options.with_layers = true;
  options.dump = PlanDump::kMemory;
  const PlannedRun planned = planned_on(machine_with(0), job_of(0), options);
  EXPECT_EQ(planned.device.device, "devices/cpu");
  EXPECT_GE(planned.plan.layers.size(), 9u);
  EXPECT_FALSE(planned.plan.dump.empty());
  EXPECT_FALSE(planned.plan.warnings.empty()) << "no rows are held out";
}

Machine machine_with_t4() {
  Machine machine = machine_with(1, 64 * kMiB);
  machine.devices.devices[1].model = "Tesla T4";
  machine.devices.devices[1].capability = 75;
  return machine;
}

TEST(Planner, Bf16OnAGpuWithoutItIsRefusedWithWhatTheGpuAccepts) {
  JobToPlan job = job_of(1);
  job.recipe.precision = Precision::kBf16;
  const auto refused = plan_on(machine_with_t4(), job, table(), std::nullopt, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "spec.recipe.precision: bf16 needs a GPU of compute capability 8.0 or later, and "
            "devices/gpu-0 (Tesla T4) has 7.5; expected fp16 (half precision with loss scaling), "
            "tf32 or fp32");
  for (const Precision accepted : {Precision::kFp16, Precision::kTf32, Precision::kFp32}) {
    job.recipe.precision = accepted;
    EXPECT_EQ(planned_on(machine_with_t4(), job).device.device, "devices/gpu-0");
  }
}

TEST(Planner, Bf16IsPlannedForTheDeviceThatHasIt) {
  JobToPlan any = job_of(0);
  any.recipe.precision = Precision::kBf16;
  const PlannedRun on_cpu = planned_on(machine_with_t4(), any, kWhereItStarts);
  EXPECT_EQ(on_cpu.device.device, "devices/cpu");
  EXPECT_EQ(on_cpu.device.advice,
            "The CPU: bf16 needs a GPU of compute capability 8.0 or later, and devices/gpu-0 "
            "(Tesla T4) has 7.5.");
  Machine both = machine_with_t4();
  both.devices.devices.push_back(device_named("devices/gpu-1", 64 * kMiB));
  both.devices.devices[2].capability = 80;
  PlannedRun planned = planned_on(both, any, kWhereItStarts);
  EXPECT_EQ(planned.device.device, "devices/gpu-1");
  // The memory is that of the GPU on which the job may run.
  both.devices.devices[2].memory_bytes = kMiB / 64;
  any.wish = DeviceWish::kGpu;
  EXPECT_FALSE(judged(both, any, planned).fits);
}

// The worker's own check, for a GPU whose compute capability the daemon does not know.
TEST(Planner, ARecipeInBf16IsRefusedByItsName) {
  JobToPlan job = job_of(1);
  job.recipe.precision = Precision::kBf16;
  DeviceTraits old = kGpuTraits;
  old.has_bf16 = false;
  const auto refused = plan_run(job.model, job.recipe, table(), 1, old);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "recipe.precision: bf16 needs a GPU of compute capability 8.0 or later, and this one "
            "is older; expected fp16 (half precision with loss scaling), tf32 or fp32");
  job.recipe.precision = Precision::kFp16;
  EXPECT_TRUE(plan_run(job.model, job.recipe, table(), 1, old).ok());
}

TEST(Planner, WeightsThatDoNotMatchAreRefusedOrReported) {
  JobToPlan job = job_of(1);
  job.recipe.initial_weights.source = "models/other";
  const std::vector<FileTensor> others = {{"conv.weight", "F32", Shape({3, 3})}};
  const Machine machine = machine_with(1, 64 * kMiB);
  const auto plan = [&](bool must_match) {
    return plan_on(machine, job, table(), StartingTensors{others, must_match}, {});
  };
  ASSERT_FALSE(plan(true).ok());
  const Result<PlannedRun> reported = plan(false);
  ASSERT_TRUE(reported.ok());
  ASSERT_TRUE(reported->lacks_weights.has_value());
  EXPECT_EQ(reported->lacks_weights->message, plan(true).error().message);
}

TEST(Planner, MissingDevicesAreNamed) {
  const Result<PlannedRun> refused = plan_on(machine_with(1), job_of(2), table(), std::nullopt, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "RESOURCES_IMPOSSIBLE");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(
      plan_on(machine_with(1), job_of(1), table(), std::nullopt, {}, stop.get_token()).ok());
}

}  // namespace
}  // namespace trainyard
