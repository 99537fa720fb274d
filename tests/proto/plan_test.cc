// Fails if a plan differs between the API and the planner, or if a sharding plan is offered that
// the spec forbids for reasons unknown to the engine.
#include "proto/convert/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "proto/convert/run.h"

namespace trainyard {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

v1::JobSpec spec_of(int gpus) {
  v1::JobSpec spec;
  spec.mutable_dataset()->set_name("table");
  for (int i = 0; i < 8; ++i) spec.mutable_model()->mutable_mlp()->add_hidden(64);
  spec.mutable_recipe()->set_epochs(1);
  spec.mutable_recipe()->set_batch_size(512);
  spec.mutable_recipe()->set_precision(v1::Recipe::FP32);
  spec.mutable_recipe()->mutable_optimizer()->set_type(v1::Optimizer::ADAM);
  spec.mutable_recipe()->mutable_optimizer()->set_learning_rate(0.001);
  spec.mutable_resources()->set_device(v1::Resources::GPU);
  if (gpus > 1) spec.mutable_resources()->set_gpus(gpus);
  return spec;
}

JobToPlan job_of(const v1::JobSpec& spec) { return to_plan(spec, to_engine(spec).value()); }

DatasetSchema table() {
  DatasetSchema schema;
  schema.columns.resize(64);
  schema.target.classes = {"a", "b", "c", "d"};
  schema.train_rows = 1000;
  return schema;
}

Machine gpus_with(int count, int64_t memory_bytes) {
  Machine machine;
  for (int i = 0; i < count; ++i) {
    Device& gpu = machine.devices.devices.emplace_back();
    gpu.name = "devices/gpu-" + std::to_string(i);
    gpu.kind = DeviceKind::kGpu;
    gpu.memory_bytes = memory_bytes;
    gpu.overhead_bytes = kMiB;
  }
  machine.step_time = [](const Device&, const RunWork&) -> Result<TimeRange> {
    return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN", "no rates");
  };
  return machine;
}

TEST(PlanOnTheWire, FieldsThatTheSpecOmitsMayBeChosen) {
  const JobToPlan open = job_of(spec_of(2));
  EXPECT_TRUE(open.free.recompute);
  EXPECT_TRUE(open.free.accumulate_steps);
  EXPECT_TRUE(open.free.shard);
  EXPECT_EQ(open.wish, DeviceWish::kGpu);
  EXPECT_EQ(open.ranks(), 2);
  v1::JobSpec named = spec_of(2);
  named.mutable_recipe()->set_recompute(v1::Recipe::NONE);
  named.mutable_recipe()->set_accumulate_steps(1);
  named.mutable_resources()->add_shard(v1::Resources::NONE);
  const JobToPlan closed = job_of(named);
  EXPECT_FALSE(closed.free.recompute);
  EXPECT_FALSE(closed.free.accumulate_steps);
  EXPECT_FALSE(closed.free.shard);
}

TEST(PlanOnTheWire, PlansThatOtherFieldsForbidAreRefusedWithTheirMessage) {
  v1::JobSpec spec = spec_of(1);
  spec.mutable_resources()->set_device(v1::Resources::CPU);
  spec.mutable_resources()->set_cluster("cluster");
  spec.mutable_resources()->set_nodes(2);
  const JobToPlan job = job_of(spec);
  EXPECT_TRUE(job.check_shard(Shard::kOptimizer).ok());
  spec.mutable_resources()->add_shard(v1::Resources::HEAD);
  const Result<EngineSpec> named = to_engine(spec);
  ASSERT_FALSE(named.ok());
  const Status refused = job.check_shard(Shard::kHead);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, named.error().message);
}

TEST(PlanOnTheWire, RowsIncludeTheOverheadOfTheProcess) {
  const Machine machine = gpus_with(2, 65 * kMiB);
  PlanOptions options;
  options.all_shardings = true;
  const PlannedRun planned =
      plan_on(machine, job_of(spec_of(2)), table(), std::nullopt, options).value();
  const v1::JobPlan plan = to_proto(planned);
  const std::vector<ShardingRow>& rows = planned.shardings.plans.rows;
  ASSERT_EQ(plan.sharding_plans_size(), std::ssize(rows));
  EXPECT_EQ(plan.sharding_plans_basis(), planned.shardings.basis);
  EXPECT_EQ(plan.sharding_plans(0).verdict(), v1::ShardingRow::CHOSEN);
  EXPECT_TRUE(plan.sharding_plans(0).as_written());
  for (int i = 0; i < plan.sharding_plans_size(); ++i) {
    const v1::ShardingRow& row = plan.sharding_plans(i);
    const ShardingRow& found = rows[static_cast<size_t>(i)];
    const bool is_refused = found.verdict == ShardingVerdict::kRefused;  // it has no plan
    EXPECT_EQ(row.bytes(), is_refused ? 0 : found.bytes + kMiB);
    EXPECT_EQ(row.bytes_available(), 65 * kMiB);
    EXPECT_EQ(row.sent_bytes(), found.sent_bytes);
    EXPECT_EQ(row.recompute(), to_proto(found.sharding.recompute));
    EXPECT_EQ(row.accumulate_steps(), 1);
    EXPECT_FALSE(row.shard().empty());
    EXPECT_EQ(row.step_seconds(), 0);
  }
  EXPECT_FALSE(plan.run().has_fit_choice());
}

TEST(PlanOnTheWire, AChoiceListsOnlyDifferences) {
  FitChoice choice;
  choice.accumulate_steps = 4;
  choice.bytes_as_written = 10;
  choice.message = "why";
  v1::FitChoice wire = to_proto(choice);
  EXPECT_EQ(wire.accumulate_steps(), 4);
  EXPECT_EQ(wire.recompute(), v1::Recipe::RECOMPUTE_UNSPECIFIED);
  EXPECT_TRUE(wire.shard().empty());
  EXPECT_EQ(wire.bytes_as_written(), 10);
  EXPECT_EQ(wire.message(), "why");
  choice.shard = Shard::kOptimizer | Shard::kHead;
  choice.recompute = Recompute::kFull;
  choice.batch_size = 32;
  wire = to_proto(choice);
  EXPECT_EQ(wire.shard_size(), 2);
  EXPECT_EQ(wire.recompute(), v1::Recipe::FULL);
  EXPECT_EQ(wire.batch_size(), 32);
}

TEST(PlanOnTheWire, AVerdictHasAdviceOnlyIfItDoesNotFit) {
  MemoryFit fit;
  fit.bytes_needed = 7;
  fit.advice.batch_size = 3;
  EXPECT_TRUE(to_proto(fit).fits());
  EXPECT_EQ(to_proto(fit).batch_size(), 0);
  fit.fits = false;
  fit.bytes_short = 2;
  fit.message = "too large";
  fit.advice.shard = Shard::kOptimizer;
  const v1::MemoryFit wire = to_proto(fit);
  EXPECT_EQ(wire.batch_size(), 3);
  EXPECT_EQ(wire.bytes_short(), 2);
  EXPECT_EQ(wire.message(), "too large");
  ASSERT_EQ(wire.shard_size(), 1);
  EXPECT_EQ(wire.shard(0), v1::Resources::OPTIMIZER);
}

TEST(PlanOnTheWire, AdviceNamesOptimizersThatKeepLess) {
  MemoryFit fit;
  fit.fits = false;
  fit.advice.optimizers = {{"lion", true, 1, 4}, {"sgd"}};
  const v1::MemoryFit wire = to_proto(fit);
  ASSERT_EQ(wire.optimizers_size(), 2);
  EXPECT_EQ(wire.optimizers(0).type(), "lion");
  EXPECT_TRUE(wire.optimizers(0).without_clip_norm());
  EXPECT_EQ(wire.optimizers(0).accumulate_steps(), 1);
  EXPECT_EQ(wire.optimizers(0).batch_size(), 4);
  EXPECT_EQ(wire.optimizers(1).type(), "sgd");
  EXPECT_EQ(wire.optimizers(1).batch_size(), 0);
  EXPECT_EQ(describe(fit.advice),
            "recipe.optimizer.type: lion with no recipe.clip_gradients.norm and "
            "recipe.accumulate_steps: 1 and recipe.batch_size: 4 or recipe.optimizer.type: sgd "
            "would fit");
}

}  // namespace
}  // namespace trainyard
