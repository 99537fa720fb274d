// server/planning/spec_check.h: what of a job's spec depends on the store, or is not the engine's:
// labels, the jobs that it waits for, the model that it starts from.
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

/// The jobs that it waits for, in the spec by their full names from then on.
std::vector<Dependency> read_after(v1::JobSpec& spec, Violations& violations);

/// The model whose weights the job starts from, which must exist unless an unfinished job that it
/// waits for will make it: then nothing, and its id is in `pending_id`.
Result<std::optional<Model>> find_initial_weights(const v1::JobSpec& spec,
                                                  const std::vector<Dependency>& after,
                                                  std::string* pending_id, Store& store);

}  // namespace trainyard::server
