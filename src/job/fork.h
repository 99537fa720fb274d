// src/job/fork.h: a run that begins at a checkpoint of another. Its parameters, optimizer state
// and place in the data are those of that step: the files are the same ones. What may differ is
// what decides the steps to come and has no state of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/train_job.h"

namespace trainyard {

/// A checkpoint as another run's first one.
struct Fork {
  CheckpointFolder from;
  CheckpointState state;             // as the new run has it
  std::vector<std::string> changes;  // "recipe.epochs: 3 becomes 5"
};

/// What `from` becomes for `job`, of which model, recipe and dataset count: nothing is written.
/// INVALID_ARGUMENT/FORK_CHANGES names the fields that may not differ;
/// FAILED_PRECONDITION/CHECKPOINT_FOREIGN if the checkpoint does not tell what it is of;
/// NOT_FOUND/CHECKPOINT_NOT_FOUND if it is not there, or not whole.
Result<Fork> plan_fork(const CheckpointFolder& from, const TrainJob& job);

/// Puts the checkpoint into `folder`, durable or not at all.
Result<CheckpointDigests> write_fork(Files& files, const Fork& fork,
                                     const std::filesystem::path& folder);

}  // namespace trainyard
