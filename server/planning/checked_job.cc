#include "server/planning/checked_job.h"

#include <utility>

#include "proto/convert/plan.h"
#include "proto/convert/run.h"
#include "server/planning/cluster_devices.h"
#include "server/planning/open_batch.h"
#include "server/rpc/status.h"
#include "src/base/violations.h"

namespace trainyard::server {
Result<CheckedJob> check_job(const JobScope& scope, const v1::JobSpec& spec,
                             StartingWeights weights, const Config& config) {
  Violations violations;
  check_labels(spec, violations);
  if (spec.dataset().name().empty()) {
    violations.add("FIELD_REQUIRED", "dataset.name", "is missing, expected a dataset's id");
  }
  // The engine's checks come before those of the store, so that a user first learns of all problems
  // of the spec at the same time.
  CheckedJob job;
  job.project = scope.project;
  job.spec = spec;
  resolve_cluster(config.clusters, *job.spec.mutable_resources(), violations);
  const bool batch_is_open = batch_size_is_open(spec);
  if (batch_is_open) {  // a placeholder until it is chosen
    job.spec.mutable_recipe()->set_batch_size(batch_unit(spec));
  }
  Result<EngineSpec> engine = to_engine(job.spec);
  if (!engine.ok()) violations.add(engine.error());
  job.after = read_after(scope.project, job.spec, violations);
  if (!violations.empty()) return violations.to_error();

  ASSIGN_OR_RETURN(job.dataset, find_dataset(scope, spec));
  if (job.dataset.state != v1::Dataset::READY) return not_ready_error(job.dataset, "submit");
  if (Status s = scope.store.jobs().check_after(scope.project, job.after); !s.ok()) {
    return s.error();
  }
  job.spec.mutable_dataset()->set_name(job.dataset.name());
  // Store both with the job: the same thread count and precision give the same bits even if the
  // defaults change.
  job.threads_named = spec.resources().has_threads();
  if (!job.spec.resources().has_threads()) {
    job.spec.mutable_resources()->set_threads(config.threads_per_job);
  }
  job.spec.mutable_recipe()->set_precision(to_proto(engine->recipe.precision));
  auto initial_weights = find_initial_weights(scope, spec, job.after, &job.pending_model_id);
  if (initial_weights.ok()) {
    job.initial_weights = std::move(initial_weights).value();
  } else if (weights == StartingWeights::kMayBeGone &&
             initial_weights.error().code == ErrorCode::kNotFound) {
    job.lacks_weights = initial_weights.error();
  } else {
    return initial_weights.error();
  }
  job.job = to_plan(job.spec, std::move(engine).value());
  job.job.batch_is_open = batch_is_open;
  return job;
}

void set_choice(const PlannedRun& planned, CheckedJob& job) {
  job.job.recipe = planned.recipe;
  job.job.batch_is_open = false;
  if (!planned.choice) return;
  const FitChoice& choice = *planned.choice;
  v1::Recipe& recipe = *job.spec.mutable_recipe();
  if (choice.batch_size > 0) recipe.set_batch_size(choice.batch_size);
  if (choice.recompute) recipe.set_recompute(to_proto(*choice.recompute));
  if (choice.accumulate_steps) recipe.set_accumulate_steps(*choice.accumulate_steps);
  if (!choice.shard) return;
  v1::Resources& resources = *job.spec.mutable_resources();
  resources.clear_shard();
  for (const v1::Resources::Shard part : to_proto(*choice.shard)) resources.add_shard(part);
}

}  // namespace trainyard::server
