#include "proto/convert/plan.h"

#include <utility>

#include "proto/convert/resources.h"
#include "proto/convert/run.h"

namespace trainyard {
namespace {

v1::JobPlan with_layers(const JobPlan& plan) {
  v1::JobPlan out;
  *out.mutable_run() = to_proto(plan.run);
  for (const LayerRow& row : plan.layers) {
    v1::LayerPlan* layer = out.add_layers();
    layer->set_name(row.name);
    layer->set_op(row.op);
    const auto& dims = row.output.shape.dims();
    layer->mutable_output_shape()->Add(dims.begin(), dims.end());
    layer->set_output_type(std::string(name_of(row.output.dtype)));
    layer->set_parameter_count(row.parameter_count);
    layer->set_flops_forward(row.flops_forward);
    layer->set_flops_step(row.flops_step);
  }
  for (const std::string& warning : plan.run.warnings) out.add_warnings(warning);
  for (const std::string& warning : plan.warnings) out.add_warnings(warning);
  out.set_dump(plan.dump);
  return out;
}

v1::GpuComparison::Verdict to_proto(CostVerdict verdict) {
  switch (verdict) {
    case CostVerdict::kCpu:
      return v1::GpuComparison::CPU;
    case CostVerdict::kProbablyCpu:
      return v1::GpuComparison::PROBABLY_CPU;
    case CostVerdict::kDepends:
      return v1::GpuComparison::DEPENDS;
    case CostVerdict::kProbablyGpu:
      return v1::GpuComparison::PROBABLY_GPU;
    case CostVerdict::kGpu:
      return v1::GpuComparison::GPU;
  }
  return v1::GpuComparison::VERDICT_UNSPECIFIED;
}

void set_advice(const FitAdvice& advice, v1::MemoryFit& fit) {
  fit.set_batch_size(advice.batch_size);
  fit.set_accumulate_steps(advice.accumulate_steps);
  for (const OptimizerAdvice& optimizer : advice.optimizers) {
    v1::MemoryFit::LeanOptimizer& to = *fit.add_optimizers();
    to.set_type(optimizer.type);
    to.set_without_clip_norm(optimizer.without_clip_norm);
    to.set_accumulate_steps(optimizer.accumulate_steps);
    to.set_batch_size(optimizer.batch_size);
  }
  if (advice.recompute != Recompute::kNone) fit.set_recompute(to_proto(advice.recompute));
  if (advice.shard == Shard::kNone) return;
  for (const v1::Resources::Shard part : to_proto(advice.shard)) fit.add_shard(part);
}

}  // namespace

JobToPlan to_plan(const v1::JobSpec& spec, EngineSpec engine) {
  JobToPlan job;
  job.model = std::move(engine.model);
  job.recipe = std::move(engine.recipe);
  job.free = {spec.recipe().recompute() == v1::Recipe::RECOMPUTE_UNSPECIFIED,
              !spec.recipe().has_accumulate_steps(), spec.resources().shard().empty()};
  job.wish = wish_of(spec.resources());
  job.gpus = gpus_of(spec.resources());
  job.nodes = nodes_of(spec.resources());
  job.check_shard = [spec](Shard shard) -> Status {
    v1::JobSpec named = spec;
    for (const v1::Resources::Shard part : to_proto(shard)) {
      named.mutable_resources()->add_shard(part);
    }
    const Result<EngineSpec> checked = to_engine(named);
    return checked.ok() ? Status{} : Status{checked.error()};
  };
  return job;
}

v1::JobPlan to_proto(const PlannedRun& planned) {
  v1::JobPlan out = with_layers(planned.plan);
  if (planned.choice) *out.mutable_run()->mutable_fit_choice() = to_proto(*planned.choice);
  const MemoryRoom& room = planned.shardings.room;
  for (const ShardingRow& row : planned.shardings.plans.rows) {
    v1::ShardingRow& to = *out.add_sharding_plans() = to_proto(row);
    if (row.bytes > 0) to.set_bytes(row.bytes + room.overhead_bytes);
    to.set_bytes_available(room.available_bytes());
  }
  out.set_sharding_plans_basis(planned.shardings.basis);
  return out;
}

v1::MemoryFit to_proto(const MemoryFit& fit) {
  v1::MemoryFit out;
  out.set_fits(fit.fits);
  out.set_bytes_needed(fit.bytes_needed);
  out.set_bytes_available(fit.bytes_available);
  if (fit.fits) return out;
  out.set_bytes_short(fit.bytes_short);
  out.set_message(fit.message);
  set_advice(fit.advice, out);
  return out;
}

v1::FitChoice to_proto(const FitChoice& choice) {
  v1::FitChoice out;
  out.set_batch_size(choice.batch_size);
  if (choice.recompute) out.set_recompute(to_proto(*choice.recompute));
  if (choice.accumulate_steps) out.set_accumulate_steps(*choice.accumulate_steps);
  if (choice.shard) {
    for (const v1::Resources::Shard part : to_proto(*choice.shard)) out.add_shard(part);
  }
  out.set_bytes_as_written(choice.bytes_as_written);
  out.set_flops_as_written(choice.flops_as_written);
  out.set_step_seconds(choice.step_seconds);
  out.set_step_seconds_as_written(choice.step_seconds_as_written);
  out.set_message(choice.message);
  return out;
}

v1::ShardingRow to_proto(const ShardingRow& row) {
  v1::ShardingRow out;
  for (const v1::Resources::Shard part : to_proto(row.sharding.shard)) out.add_shard(part);
  out.set_recompute(to_proto(row.sharding.recompute));
  out.set_accumulate_steps(row.sharding.accumulate_steps);
  switch (row.verdict) {
    case ShardingVerdict::kChosen:
      out.set_verdict(v1::ShardingRow::CHOSEN);
      break;
    case ShardingVerdict::kFits:
      out.set_verdict(v1::ShardingRow::FITS);
      break;
    case ShardingVerdict::kChangesResult:
      out.set_verdict(v1::ShardingRow::CHANGES_RESULT);
      break;
    case ShardingVerdict::kDoesNotFit:
      out.set_verdict(v1::ShardingRow::DOES_NOT_FIT);
      break;
    case ShardingVerdict::kRefused:
      out.set_verdict(v1::ShardingRow::REFUSED);
      break;
  }
  out.set_as_written(row.as_written);
  out.set_message(row.message);
  out.set_bytes(row.bytes);
  out.set_sent_bytes(row.sent_bytes);
  if (row.step) {
    out.set_step_seconds(row.step->seconds);
    out.set_step_seconds_low(row.step->low);
    out.set_step_seconds_high(row.step->high);
  }
  return out;
}

v1::GpuComparison to_proto(const ComparedGpu& compared, const CpuForecast& cpu) {
  v1::GpuComparison out;
  out.set_gpu(std::string(compared.gpu->name));
  out.set_gpu_model(std::string(compared.gpu->facts.model));
  out.set_memory_bytes(compared.gpu->memory_bytes);
  out.set_bytes_needed(compared.bytes_needed);
  out.set_advice(compared.text(cpu));
  if (!compared.obstacle.empty()) {
    out.set_verdict(v1::GpuComparison::IMPOSSIBLE);
    return out;
  }
  const RunForecast& run = compared.forecast;
  out.set_step_seconds(run.step.seconds);
  out.set_step_seconds_low(run.step.low);
  out.set_step_seconds_high(run.step.high);
  out.set_total_seconds(run.total.seconds);
  out.set_total_seconds_low(run.total.low);
  out.set_total_seconds_high(run.total.high);
  out.set_limited_by(std::string(name_of(run.limited_by)));
  if (!compared.advice) return out;
  out.set_verdict(to_proto(compared.advice->verdict));
  const RatioRange &speedup = compared.advice->speedup, &cost = compared.advice->cost;
  out.set_speedup(speedup.likely);
  out.set_speedup_low(speedup.low);
  out.set_speedup_high(speedup.high);
  out.set_cost_share(cost.likely);
  out.set_cost_share_low(cost.low);
  out.set_cost_share_high(cost.high);
  return out;
}

}  // namespace trainyard
