// src/train/trainer.h: trains one job from spec to model, on one or several devices.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/runtime/backend.h"

namespace trainyard {

struct TrainResult {
  int64_t steps_done = 0;  // fewer than planned after an early stop
  std::vector<MetricPoint> final_metrics;
  ConfusionMatrices confusion;       // if the recipe requests them
  std::vector<std::string> classes;  // labels of the rows and columns of `confusion`
  // The final metrics of a prediction that ignores the inputs (src/train/baseline.h), with the same
  // keys.
  std::vector<MetricPoint> baselines;
  std::vector<std::string> warnings;  // those reported in this attempt
  int64_t arena_planned_bytes = 0;
  int64_t arena_used_bytes = 0;
  RunTimes times;
};

/// Trains to the end, or until `stop` is requested: then a checkpoint is written and the error is
/// CANCELLED/STOPPED. If the loss is not finite, the error is FAILED_PRECONDITION/LOSS_NOT_FINITE
/// and names the step; the last good checkpoint stays. Faults are thrown as exceptions. `clock`
/// decides when checkpoints are written, never their content.
///
/// Several devices must be connected (open_devices()). They belong to this process, or to several
/// processes that train the job together and each call this function; results depend on the total
/// number of devices. ABORTED/RANKS_DIFFER if the processes were given different jobs or
/// checkpoints. Throws RankLost if another process ends. Only the first process writes. Throws
/// RankStopped (replicated_session.h) if a device is stuck; that device's backend then stays alive.
Result<TrainResult> train(const TrainJob& job, const std::vector<RankDevice>& devices, Files& files,
                          Reporter& reporter, std::stop_token stop,
                          const Clock& clock = system_clock());
/// Trains the job on one device, which the caller owns.
Result<TrainResult> train(const TrainJob& job, Backend& backend, Files& files, Reporter& reporter,
                          std::stop_token stop, const Clock& clock = system_clock());

}  // namespace trainyard
