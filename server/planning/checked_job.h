// server/planning/checked_job.h: a job's spec that is valid by itself and together with the
// dataset, the jobs and the model that it names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/planning/spec_check.h"
#include "server/store/store.h"
#include "src/base/result.h"
#include "src/planning/planner.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

/// Whether a job can be planned without its `recipe.initial_weights`. Only its first step needs
/// them; a job that begins at a checkpoint has its weights there.
enum class StartingWeights : uint8_t { kNeeded, kMayBeGone };

struct CheckedJob {
  std::string project;
  v1::JobSpec spec;  // as accepted: full dataset name, thread count and precision filled in
  JobToPlan job;     // the same spec for the planner
  Dataset dataset;
  std::vector<Dependency> after;
  std::optional<Model> initial_weights;
  // Instead of initial_weights: a job in `after` will create this model.
  std::string pending_model_id;
  std::optional<Error> lacks_weights;  // why the weights are not available (kMayBeGone)
  bool threads_named = false;          // the user set resources.threads
};

/// Checks a spec. Returns either all errors of the spec's fields together, or the first error of
/// the store's data.
Result<CheckedJob> check_job(const JobScope& scope, const v1::JobSpec& spec,
                             StartingWeights weights, const Config& config);

/// Writes the planner's choices into both forms of the spec.
void set_choice(const PlannedRun& planned, CheckedJob& job);

}  // namespace trainyard::server
