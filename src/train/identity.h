// src/train/identity.h: which run a checkpoint is of. A run is the same run where all that decides
// its numbers is the same: the dataset, the model, and the fields of the recipe that its
// visit_fields() names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/checkpoint.h"
#include "src/train/trainer.h"

namespace trainyard {

/// What a checkpoint records of its run.
struct RunRecord {
  std::string digest;       // "2:" and the SHA-256 of the description; without a rule: rule 1
  std::string description;  // JSON {"dataset": digest, "model": {...}, "recipe": {...}}; rule 2 on
};

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
  /// Each field in which a record is of another run. FAILED_PRECONDITION/CHECKPOINT_FOREIGN if the
  /// record does not tell.
  Result<std::vector<FieldDifference>> differences(const RunRecord& recorded) const;

 private:
  RunRecord record_;
  std::string digest_by_rule_1_;
};

/// True for a record of rule 1, which knew neither recipe.augmentation nor recipe.context_length: a
/// run that differs only in these is treated as the same.
bool is_rule_1(const RunRecord& recorded);

/// The digest that checkpoints of rule 1 hold. Rule 1 is frozen.
std::string digest_by_rule_1(const ModelSpec& model, const Recipe& recipe,
                             const std::string& dataset_digest);

}  // namespace trainyard
