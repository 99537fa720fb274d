// The tests catch a choice that the recipe does not get or that its message misstates, and step
// times of a device that the job would not get.
#include "src/planning/sharding_choice.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/engine/planning_support.h"

namespace trainyard {
namespace {

/// A job, and the memory that its plan may use on a GPU.
struct Asked {
  Asked(JobToPlan j, int64_t plan_bytes_max)
      : job(std::move(j)), room{"devices/gpu-0", plan_bytes_max + kMiB, 0, kMiB} {}

  FoundShardings find(const StepTimeOn& step_time, bool all = true,
                      DeviceTraits traits = kGpuTraits) {
    machine.step_time = step_time;
    return find_sharding_plans({job, job.recipe, schema, machine, room, traits, all}, {}).value();
  }
  std::optional<FitChoice> choose(const StepTimeOn& step_time) {
    const RunPlan as_written = plan_of(job);
    const ShardingPlans plans = find(step_time, /*all=*/false).plans;
    return choose_fit(job.recipe, plans, as_written, room, kGpuTraits);
  }

  JobToPlan job;
  DatasetSchema schema = table();
  Machine machine = machine_with(1);
  MemoryRoom room;
};

TEST(ShardingChoice, IsWrittenIntoTheRecipe) {
  const int64_t limit = bytes_with(job_of(1), [](Recipe& r) { r.recompute = Recompute::kFull; });
  Asked asked(job_of(1), limit);
  const std::optional<FitChoice> choice = asked.choose(unknown);
  ASSERT_TRUE(choice.has_value());
  EXPECT_NE(asked.job.recipe.recompute, Recompute::kNone);
  EXPECT_EQ(choice->recompute, asked.job.recipe.recompute);
  EXPECT_FALSE(choice->shard.has_value()) << "nothing was chosen of it";
  EXPECT_FALSE(choice->accumulate_steps.has_value());
  EXPECT_LE(plan_of(asked.job).memory.total(), limit);
  EXPECT_NE(choice->message.find("was chosen: as written, the job needs"), std::string::npos)
      << choice->message;
  EXPECT_TRUE(choice->message.ends_with("The result is the same to the bit"));

  Asked hopeless(job_of(1), 1000);
  EXPECT_FALSE(hopeless.choose(unknown).has_value());
  EXPECT_EQ(sharding_of(hopeless.job.recipe), sharding_of(job_of(1).recipe));
}

// At these rates, recompute is expensive and micro-batches are free.
TEST(ShardingChoice, ChoicesByForecastAreReportedAsSuch) {
  const int64_t limit =
      std::max(bytes_with(job_of(1), [](Recipe& r) { r.recompute = Recompute::kFull; }),
               bytes_with(job_of(1), [](Recipe& r) { r.accumulate_steps = 8; }));
  ASSERT_LT(limit, bytes_with(job_of(1), [](Recipe&) {}));
  const StepTimeOn by_work = [](const Device&, const RunWork& work) -> Result<TimeRange> {
    // true with micro-batches: they are host steps too
    const double seconds = work.step.steps_of_host > 1 ? 0.5 : 1.0;
    return TimeRange{seconds, 0.9 * seconds, 1.1 * seconds};
  };
  Asked asked(job_of(1), limit);
  const std::optional<FitChoice> choice = asked.choose(by_work);
  ASSERT_TRUE(choice.has_value());
  EXPECT_GT(asked.job.recipe.accumulate_steps, 1);
  EXPECT_FALSE(choice->recompute.has_value());
  EXPECT_NE(choice->message.find("was chosen by forecast: as written"), std::string::npos)
      << choice->message;
  EXPECT_TRUE(choice->message.ends_with("The result is the same except for rounding"));
  EXPECT_EQ(*asked.find(by_work).plans.chosen, sharding_of(asked.job.recipe));
}

// A job that may run on the CPU is planned with the CPU's passes, but with the GPU's rates.
TEST(ShardingChoice, TimesAreThoseOfTheDeviceOnWhichTheJobFits) {
  Asked asked(job_of(1), 64 * kMiB);
  int calls = 0;
  const StepTimeOn times = [&](const Device& device, const RunWork& work) -> Result<TimeRange> {
    ++calls;
    EXPECT_EQ(device.name, "devices/gpu-0");
    EXPECT_EQ(work.step.processor, Processor::kGpu);
    return TimeRange{1, 0.9, 1.1};
  };
  const FoundShardings found = asked.find(times, true, {kCudaAlignment, Processor::kCpu});
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(found.basis, "Steps are forecast from the rates measured on devices/gpu-0.");
  EXPECT_EQ(asked.find(unknown).basis,
            "The time of a step is unknown: this server measures no rates.");
  Asked two(job_of(2), 64 * kMiB);
  EXPECT_NE(two.find(times).basis.find("; the link between its GPUs is not measured: 20 GB/s"),
            std::string::npos);
}

TEST(ShardingChoice, CostsOfAFitAreForecastTimeOrElseWork) {
  FitChoice choice;
  choice.flops_as_written = 1000;
  EXPECT_EQ(cost_text(choice, 1330), "; a step computes 33% more");
  EXPECT_EQ(cost_text(choice, 1000), "");
  choice.step_seconds = 0.127;
  EXPECT_EQ(cost_text(choice, 1330), "; a step computes 33% more") << "no time to compare with";
  choice.step_seconds_as_written = 0.1;
  EXPECT_EQ(cost_text(choice, 1330), "; a step takes about 27% longer by forecast");
  choice.step_seconds = 0.1001;
  EXPECT_EQ(cost_text(choice, 1000), "; a step takes about as long by forecast");
  choice.step_seconds = 0.09;
  EXPECT_EQ(cost_text(choice, 1000), "; a step takes about 10% less by forecast");
}

}  // namespace
}  // namespace trainyard
