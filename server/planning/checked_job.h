// server/planning/checked_job.h: a job's spec, valid by itself and with the dataset, the jobs and
// the model that it names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/store/store.h"
#include "src/base/result.h"
#include "src/planning/planner.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

/// Whether a job can be planned without its `recipe.initial_weights`. Only its first step needs
/// them: a job that begins at a checkpoint has them there.
enum class StartingWeights : uint8_t { kNeeded, kMayBeGone };

struct CheckedJob {
  v1::JobSpec spec;  // as accepted: full dataset name, thread count and precision filled in
  JobToPlan job;     // the same for the planner
  Dataset dataset;
  std::vector<Dependency> after;
  std::optional<Model> initial_weights;
  std::string pending_model_id;        // in place of initial_weights: a job in `after` will make it
  std::optional<Error> lacks_weights;  // why these weights cannot be had (kMayBeGone)
  bool threads_named = false;          // by the user
};

/// Refusals are those of the spec's fields, all at once, then of what the store has.
Result<CheckedJob> check_job(const v1::JobSpec& spec, StartingWeights weights, const Config& config,
                             Store& store);

/// Writes the planner's choices into both forms of the spec.
void set_choice(const PlannedRun& planned, CheckedJob& job);

}  // namespace trainyard::server
