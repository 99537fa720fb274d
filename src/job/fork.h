// src/job/fork.h: forks. A fork is a run that begins at a checkpoint of another run, with the
// parameters, the optimizer state and the position in the data of that checkpoint. It shares the
// checkpoint's files by hard links. It may change the settings that influence only later steps and
// have no state of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/train_job.h"

namespace trainyard {

/// A checkpoint of one run, adapted to be the first checkpoint of another.
struct Fork {
  CheckpointFolder from;
  CheckpointState state;             // the state with which the new run begins
  std::vector<std::string> changes;  // "recipe.epochs: 3 becomes 5"
};

/// Adapts the checkpoint `from` to `job`, of which only model, recipe and dataset are used. Writes
/// nothing. Errors: INVALID_ARGUMENT/FORK_CHANGE_UNSUPPORTED names the fields that differ and must
/// not; FAILED_PRECONDITION/CHECKPOINT_FOREIGN if the checkpoint has no readable record of its run;
/// NOT_FOUND/CHECKPOINT_NOT_FOUND if the checkpoint is missing or incomplete.
Result<Fork> plan_fork(const CheckpointFolder& from, const TrainJob& job);

/// Writes the checkpoint into `folder` durably. After an error the folder has no such checkpoint.
Result<CheckpointDigests> write_fork(Files& files, const Fork& fork,
                                     const std::filesystem::path& folder);

}  // namespace trainyard
