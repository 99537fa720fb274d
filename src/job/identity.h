// src/job/identity.h: which run a checkpoint is of. A run is the same run where all that decides
// its numbers is the same: the dataset, the model, the fields of the recipe that its visit_fields()
// names, and the arithmetic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"

namespace trainyard {

/// What a checkpoint records of its run.
struct RunRecord {
  std::string digest;  // "1:" and the SHA-256 of the description
  // JSON {"arithmetic": how, "dataset": digest, "model": {...}, "recipe": {...}}
  std::string description;
};

/// Where runs of different versions may differ in every number: whether denormal numbers count as 0
/// (kernels/cpu/flush_denormals.h). A run that began in another arithmetic does not go on in this
/// one; another run may begin at its checkpoint (fork.h).
inline constexpr std::string_view kArithmetic = "denormal numbers count as 0";

/// What a checkpoint says of its run.
RunRecord record_of(const CheckpointState& state);

/// A field that two runs have differently, as people write it: "recipe.seed", "1", "2".
struct FieldDifference {
  std::string field;
  std::string recorded;
  std::string job;
};

/// A run, to be recorded and to be compared with records.
class RunIdentity {
 public:
  RunIdentity(const ModelSpec& model, const Recipe& recipe, const std::string& dataset_digest);
  /// Reads the digest of the job's dataset.
  static Result<RunIdentity> of(const TrainJob& job);

  const RunRecord& record() const { return record_; }
  /// Why a record is of another run, "recipe.seed: the checkpoint has 1, the job has 2"; empty if
  /// it is of this one.
  std::string difference(const RunRecord& recorded) const;
  /// Whether a record is of this run but for the arithmetic.
  bool is_in_another_arithmetic(const RunRecord& recorded) const;
  /// Each field in which a record is of another run. FAILED_PRECONDITION/CHECKPOINT_FOREIGN if the
  /// record does not tell.
  Result<std::vector<FieldDifference>> differences(const RunRecord& recorded) const;

 private:
  RunRecord record_;
};

}  // namespace trainyard
