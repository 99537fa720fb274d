// src/job/identity.h: decides whether a checkpoint belongs to a run. Two runs are the same run if
// everything that influences their numbers is equal: the dataset, the model, the fields of the
// recipe that visit_fields() visits, and the arithmetic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"

namespace trainyard {

/// The record of its run that a checkpoint contains.
struct RunRecord {
  std::string digest;  // "1:" and the SHA-256 of the description
  // JSON {"arithmetic": kArithmetic, "dataset": digest, "model": {...}, "recipe": {...}}
  std::string description;
};

/// Names the arithmetic of this version: denormal numbers are treated as 0
/// (kernels/cpu/flush_denormals.h), which may change every number of a run. A run that began with
/// another arithmetic cannot be resumed with this one, but a fork may begin at its checkpoint
/// (fork.h).
inline constexpr std::string_view kArithmetic = "denormal numbers count as 0";

/// Reads the record from a checkpoint's state.
RunRecord record_of(const CheckpointState& state);

/// A field whose values differ between two runs, as users write it: "recipe.seed", "1", "2".
struct FieldDifference {
  std::string field;
  std::string recorded;
  std::string job;
};

/// The identity of a run, which is recorded in checkpoints and compared with their records.
class RunIdentity {
 public:
  RunIdentity(const ModelSpec& model, const Recipe& recipe, const std::string& dataset_digest);
  /// Reads the digest of the job's dataset.
  static Result<RunIdentity> of(const TrainJob& job);

  const RunRecord& record() const { return record_; }
  /// Returns why a record belongs to another run, "recipe.seed: the checkpoint has 1, the job has
  /// 2"; empty if it belongs to this run.
  std::string difference(const RunRecord& recorded) const;
  /// Returns whether the arithmetic is the only difference between a record's run and this run.
  bool is_in_another_arithmetic(const RunRecord& recorded) const;
  /// Returns the fields in which a record's run differs from this run. FAILED_PRECONDITION/
  /// CHECKPOINT_FOREIGN if the record is unreadable or of another version.
  Result<std::vector<FieldDifference>> differences(const RunRecord& recorded) const;

 private:
  RunRecord record_;
};

}  // namespace trainyard
