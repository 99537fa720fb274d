// src/train/resume.h: writes a job's checkpoints, which include the state of the training loop, and
// resumes from them.
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

/// The best evaluation so far, and the weights that it evaluated; after a resume without those that
/// are stored in 16 bits, which are not trained.
struct BestState {
  double value = 0;
  int64_t step = 0;  // 0: there is none yet
  std::shared_ptr<const Snapshot> weights;
};

/// State of early stopping: since when the watched metric has not improved.
struct StoppingState {
  bool any = false;
  double best = 0;
  int64_t evaluations_since = 0;
};

/// The loop's state that is carried from step to step, apart from the tensors.
struct LoopState {
  int64_t step = 0;  // finished steps
  double train_loss = 0;
  double train_accuracy = 0;
  std::optional<double> first_loss = {};  // loss of step 1
  int64_t evaluated_step = 0;  // evaluations up to this step are counted in `best` and `stopping`
  BestState best;
  StoppingState stopping;
};

/// Returns the name of the first parameter or state tensor with a NaN or an infinity, or empty.
std::string find_not_finite(const Snapshot& snapshot);

/// Writes the checkpoint of `state` and then prunes older ones. `algorithms` are those that were
/// chosen for the run's kernels.
Result<std::filesystem::path> save(Files& files, const TrainJob& job, const RunRecord& run,
                                   std::string_view backend, const AlgorithmRecord& algorithms,
                                   const LoopState& state, const Snapshot& snapshot);

/// Returns the newest valid checkpoint of the job, or nothing if there is none.
/// FAILED_PRECONDITION/CHECKPOINT_FOREIGN, with the fields that differ, if it belongs to another
/// job; otherwise the errors of load_newest_checkpoint(). Damaged checkpoints are reported in the
/// log.
Result<std::optional<LoadedCheckpoint>> find_checkpoint(const TrainJob& job,
                                                        const RunIdentity& identity,
                                                        Reporter& reporter);
/// Returns the algorithms that the checkpoint records; empty if it records none.
Result<AlgorithmRecord> algorithms_of(const LoadedCheckpoint& checkpoint);

/// Loads the checkpoint into the session, whose kernels use `algorithms`. Logs differences that may
/// change results (another thread count, another device).
Result<LoopState> resume(const LoadedCheckpoint& checkpoint, const TrainJob& job,
                         std::string_view backend, const AlgorithmRecord& algorithms,
                         TrainingSession& session, Reporter& reporter);

}  // namespace trainyard
