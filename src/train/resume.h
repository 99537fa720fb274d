// src/train/resume.h: a job's checkpoints: who may resume which, and what the loop itself keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "src/base/result.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/identity.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/runtime/algorithms.h"
#include "src/train/training_session.h"

namespace trainyard {

/// The best evaluation so far, and what its model was.
struct BestState {
  double value = 0;
  int64_t step = 0;  // 0: there is none yet
  std::shared_ptr<const Snapshot> weights;
};

/// How long the watched metric has not improved.
struct StoppingState {
  bool any = false;
  double best = 0;
  int64_t evaluations_since = 0;
};

/// What the loop carries from step to step, apart from the tensors.
struct LoopState {
  int64_t step = 0;  // steps done
  double train_loss = 0;
  double train_accuracy = 0;
  std::optional<double> first_loss = {};  // of step 1
  int64_t evaluated_step = 0;             // the evaluations up to here are counted in what follows
  BestState best;
  StoppingState stopping;
};

/// The first parameter or state tensor that holds a NaN or an infinity, or empty.
std::string find_not_finite(const Snapshot& snapshot);

/// Writes the checkpoint of `state` in `run` and then prunes older ones. `algorithms`: what the
/// run's kernels were made of, where that was chosen.
Result<std::filesystem::path> save(Files& files, const TrainJob& job, const RunRecord& run,
                                   std::string_view backend, const AlgorithmRecord& algorithms,
                                   const LoopState& state, const Snapshot& snapshot);

/// The newest valid checkpoint of the job. Nothing if there is none;
/// FAILED_PRECONDITION/CHECKPOINT_FOREIGN, with the fields that differ, if it belongs to another
/// job; else what load_newest_checkpoint() says. Damaged ones are reported in the log.
Result<std::optional<LoadedCheckpoint>> find_checkpoint(const TrainJob& job,
                                                        const RunIdentity& identity,
                                                        Reporter& reporter);
/// What it says of algorithms; empty where it says nothing.
Result<AlgorithmRecord> algorithms_of(const LoadedCheckpoint& checkpoint);

/// Takes the checkpoint into the session, whose kernels were made of `algorithms`. What a person
/// should know (another thread count, another device) goes to the reporter's log.
Result<LoopState> resume(const LoadedCheckpoint& checkpoint, const TrainJob& job,
                         std::string_view backend, const AlgorithmRecord& algorithms,
                         TrainingSession& session, Reporter& reporter);

}  // namespace trainyard
