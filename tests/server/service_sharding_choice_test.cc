// Catches: a sharding plan that the spec forbids and the engine knows nothing of, a choice that the
// spec does not get or that its message tells otherwise, and times of a device that the job would
// not have.
#include "server/planning/sharding_choice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "proto/convert/plan.h"
#include "proto/convert/resources.h"
#include "proto/convert/run.h"

namespace trainyard::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr DeviceTraits kGpuTraits = {kCudaAlignment, Processor::kGpu};

DatasetSchema table() {
  DatasetSchema schema;
  schema.columns.resize(64);
  schema.target.classes = {"a", "b", "c", "d"};
  schema.train_rows = 1000;
  return schema;
}

v1::JobSpec spec_of(int gpus) {
  v1::JobSpec spec;
  spec.mutable_dataset()->set_name("table");
  for (int i = 0; i < 8; ++i) spec.mutable_model()->mutable_mlp()->add_hidden(64);
  spec.mutable_recipe()->set_epochs(1);
  spec.mutable_recipe()->set_batch_size(512);
  spec.mutable_recipe()->set_precision(v1::Recipe::FP32);
  spec.mutable_recipe()->mutable_optimizer()->set_type(v1::Optimizer::ADAM);
  spec.mutable_recipe()->mutable_optimizer()->set_learning_rate(0.001);
  if (gpus > 0) {
    spec.mutable_resources()->set_device(v1::Resources::GPU);
    spec.mutable_resources()->set_gpus(gpus);
  }
  return spec;
}

Devices gpu_and_cpu() {
  Device cpu, gpu;
  cpu.name = "devices/cpu";
  gpu.name = "devices/gpu-0";
  gpu.kind = DeviceKind::kGpu;
  return {{cpu, gpu}, ""};
}

Result<TimeRange> unknown(const Device&, const RunWork&) {
  return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN", "this server measures no rates");
}

/// A job, where it may have so much memory on a GPU.
struct Asked {
  explicit Asked(v1::JobSpec s, int64_t plan_bytes_max)
      : spec(std::move(s)),
        engine(to_engine(spec).value()),
        room{"devices/gpu-0", plan_bytes_max + kMiB, 0, kMiB} {}

  FoundShardings find(const StepTimeOn& step_time, bool all = true,
                      DeviceTraits traits = kGpuTraits) const {
    return server::find_sharding_plans({spec, engine, schema, devices, room, traits, step_time, all}, {})
        .value();
  }
  RunPlan plan() const {
    return plan_run(engine.model, engine.recipe, schema, ranks_of(spec.resources()), kGpuTraits)
        .value();
  }

  v1::JobSpec spec;
  EngineSpec engine;
  DatasetSchema schema = table();
  Devices devices = gpu_and_cpu();
  MemoryRoom room;
};

/// The bytes of a job with a sharding plan.
int64_t bytes_with(int gpus, const std::function<void(Recipe&)>& change) {
  Asked asked(spec_of(gpus), kMiB);
  change(asked.engine.recipe);
  return asked.plan().memory.total();
}

std::optional<v1::FitChoice> choose(Asked& asked, const StepTimeOn& step_time) {
  const v1::RunPlan as_written = to_proto(asked.plan());
  const ShardingPlans shardings = asked.find(step_time, /*all=*/false).shardings;
  return server::choose_fit(asked.spec, asked.engine, shardings, as_written, asked.room, kGpuTraits);
}

TEST(ShardingChoice, WritesTheChosenOneIntoBothFormsOfTheSpec) {
  const int64_t limit = bytes_with(1, [](Recipe& r) { r.recompute = Recompute::kFull; });
  Asked asked(spec_of(1), limit);
  const auto choice = choose(asked, unknown);
  ASSERT_TRUE(choice.has_value());
  EXPECT_NE(asked.engine.recipe.recompute, Recompute::kNone);
  EXPECT_EQ(asked.spec.recipe().recompute(), to_proto(asked.engine.recipe.recompute));
  EXPECT_EQ(choice->recompute(), asked.spec.recipe().recompute());
  EXPECT_TRUE(asked.spec.resources().shard().empty()) << "nothing was chosen of it";
  EXPECT_FALSE(asked.spec.recipe().has_accumulate_steps());
  EXPECT_LE(asked.plan().memory.total(), limit);
  EXPECT_NE(choice->message().find("was chosen: as written, the job needs"), std::string::npos)
      << choice->message();
  EXPECT_TRUE(choice->message().ends_with("The result is the same to the bit"));

  Asked hopeless(spec_of(1), 1000);
  EXPECT_FALSE(choose(hopeless, unknown).has_value());
  EXPECT_EQ(hopeless.spec.SerializeAsString(), spec_of(1).SerializeAsString());
}

// Recompute costs much and micro-batches nothing, by these rates.
TEST(ShardingChoice, WhatAForecastDecidedIsSaidToBeSo) {
  const int64_t limit = std::max(bytes_with(1, [](Recipe& r) { r.recompute = Recompute::kFull; }),
                                 bytes_with(1, [](Recipe& r) { r.accumulate_steps = 8; }));
  ASSERT_LT(limit, bytes_with(1, [](Recipe&) {}));
  const StepTimeOn by_work = [](const Device&, const RunWork& work) -> Result<TimeRange> {
    const double seconds = work.step.steps_of_host > 1 ? 0.5 : 1.0;  // micro-batches and an update
    return TimeRange{seconds, 0.9 * seconds, 1.1 * seconds};
  };
  Asked asked(spec_of(1), limit);
  const auto choice = choose(asked, by_work);
  ASSERT_TRUE(choice.has_value());
  EXPECT_GT(asked.spec.recipe().accumulate_steps(), 1);
  EXPECT_EQ(asked.spec.recipe().recompute(), v1::Recipe::RECOMPUTE_UNSPECIFIED);
  EXPECT_NE(choice->message().find("was chosen by forecast: as written"), std::string::npos)
      << choice->message();
  EXPECT_TRUE(choice->message().ends_with("The result is the same but for roundings"));
  EXPECT_EQ(*asked.find(by_work).shardings.chosen, sharding_of(asked.engine.recipe));
}

TEST(ShardingChoice, WhatOtherFieldsForbidIsRefusedInTheirWords) {
  v1::JobSpec spec = spec_of(0);
  spec.mutable_resources()->set_device(v1::Resources::CPU);
  spec.mutable_resources()->set_cluster("cluster");
  spec.mutable_resources()->set_nodes(2);
  Asked asked(spec, 64 * kMiB);
  asked.devices = {{Device()}, "cluster"};
  const StepTimeOn of_cluster = [](const Device&, const RunWork&) -> Result<TimeRange> {
    ADD_FAILURE() << "the device is none of the cluster's";
    return unknown({}, {});
  };
  const FoundShardings found = asked.find(of_cluster, true, {});
  spec.mutable_resources()->add_shard(v1::Resources::HEAD);
  const Result<EngineSpec> named = to_engine(spec);
  ASSERT_FALSE(named.ok());
  const auto row =
      std::ranges::find(found.shardings.rows, ShardingVerdict::kRefused, &ShardingRow::verdict);
  ASSERT_NE(row, found.shardings.rows.end());
  EXPECT_EQ(row->sharding.shard, Shard::kHead);
  EXPECT_EQ(row->message, named.error().message);
  for (const ShardingRow& other : found.shardings.rows) {
    EXPECT_TRUE(!splits_head(other.sharding.shard) || &other == &*row);
  }
}

// A job that may get the CPU is planned with the CPU's passes, and its rates are the GPU's.
TEST(ShardingChoice, TimesAreThoseOfTheDeviceThatHasTheRoom) {
  const Asked asked(spec_of(1), 64 * kMiB);
  int calls = 0;
  const StepTimeOn times = [&](const Device& device, const RunWork& work) -> Result<TimeRange> {
    ++calls;
    EXPECT_EQ(device.name, "devices/gpu-0");
    EXPECT_EQ(work.step.processor, Processor::kGpu);
    return TimeRange{1, 0.9, 1.1};
  };
  const FoundShardings found = asked.find(times, true, {kCudaAlignment, Processor::kCpu});
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(found.basis, "Steps are forecast by the rates measured of devices/gpu-0.");
  EXPECT_EQ(asked.find(unknown).basis,
            "How long steps take is not known: this server measures no rates.");
  const Asked two(spec_of(2), 64 * kMiB);
  EXPECT_NE(two.find(times).basis.find("; the link between its GPUs is not measured: 20 GB/s"),
            std::string::npos);
}

TEST(ShardingChoice, RowsHaveWhatTheProcessNeedsBesides) {
  const Asked asked(spec_of(2), 64 * kMiB);
  const FoundShardings found = asked.find(unknown);
  v1::JobPlan plan;
  set_sharding_plans(found, asked.room, plan);
  ASSERT_EQ(plan.sharding_plans_size(), std::ssize(found.shardings.rows));
  EXPECT_EQ(plan.sharding_plans_basis(), found.basis);
  v1::JobPlan without;
  add_workspace(3 * kMiB, without);
  EXPECT_EQ(without.sharding_plans_basis(), "") << "nobody asked for sharding plans";
  add_workspace(3 * kMiB, plan);
  EXPECT_EQ(plan.sharding_plans_basis(),
            found.basis +
                " Memory is without the kernels' workspace, which for the "
                "job as it is planned is 3 MiB.");
  EXPECT_EQ(plan.sharding_plans(0).verdict(), v1::ShardingRow::CHOSEN);
  EXPECT_TRUE(plan.sharding_plans(0).as_written());
  for (int i = 0; i < plan.sharding_plans_size(); ++i) {
    const v1::ShardingRow& row = plan.sharding_plans(i);
    const ShardingRow& found_row = found.shardings.rows[static_cast<size_t>(i)];
    const bool is_refused = found_row.verdict == ShardingVerdict::kRefused;  // and has no plan
    EXPECT_EQ(row.bytes(), is_refused ? 0 : found_row.bytes + kMiB);
    EXPECT_EQ(row.bytes_available(), 65 * kMiB);
    EXPECT_EQ(row.sent_bytes(), found_row.sent_bytes);
    EXPECT_EQ(row.recompute(), to_proto(found_row.sharding.recompute));
    EXPECT_EQ(row.accumulate_steps(), 1);
    EXPECT_FALSE(row.shard().empty());
    EXPECT_EQ(row.step_seconds(), 0);
  }
}

}  // namespace
}  // namespace trainyard::server
