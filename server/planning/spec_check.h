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

class People;

void check_labels(const v1::JobSpec& spec, Violations& violations);

/// Where a job's spec looks for what it names: in the job's project, and among what other projects
/// share with it. Who submits the job does not matter, because all members of its project read what
/// comes of it.
struct JobScope {
  std::string project;
  Store& store;
  const People& people;

  /// Returns whether the job may use a dataset or model. `collection` as in People::is_shared().
  bool may_use(std::string_view of_project, std::string_view collection, std::string_view id) const;
};

/// Returns the jobs that the job waits for, all of its project, and replaces their names in the
/// spec by full names.
std::vector<Dependency> read_after(const std::string& project, v1::JobSpec& spec,
                                   Violations& violations);

/// Returns the dataset. DATASET_NOT_FOUND, with the same message for a dataset of another project
/// that does not exist and for one that is not shared with the job's project.
Result<Dataset> find_dataset(const JobScope& scope, const v1::JobSpec& spec);

/// Returns the model whose weights the job starts from. The model must exist, unless an unfinished
/// job that this job waits for will create it. In that case returns nothing and sets `pending_id`
/// to its ID.
Result<std::optional<Model>> find_initial_weights(const JobScope& scope, const v1::JobSpec& spec,
                                                  const std::vector<Dependency>& after,
                                                  std::string* pending_id);

}  // namespace trainyard::server
