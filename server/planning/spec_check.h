// server/planning/spec_check.h: checks the parts of a job's spec that depend on the store or that
// the engine does not know: labels, the jobs that it waits for, the model that it starts from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/store/store.h"
#include "src/base/result.h"
#include "src/base/violations.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

void check_labels(const v1::JobSpec& spec, Violations& violations);

/// Returns the jobs that the job waits for, and replaces their names in the spec by full names.
std::vector<Dependency> read_after(v1::JobSpec& spec, Violations& violations);

/// Returns the model whose weights the job starts from. The model must exist, unless an unfinished
/// job that this job waits for will create it. In that case returns nothing and sets `pending_id`
/// to its ID.
Result<std::optional<Model>> find_initial_weights(const v1::JobSpec& spec,
                                                  const std::vector<Dependency>& after,
                                                  std::string* pending_id, Store& store);

}  // namespace trainyard::server
