// src/train/trainer.h: one job from spec to trained model, on one backend or on several devices.
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
  ConfusionMatrices confusion;       // where the recipe asks for them
  std::vector<std::string> classes;  // their rows and columns
  // What the final metrics would be without looking at the inputs (src/train/baseline.h): by the
  // same keys.
  std::vector<MetricPoint> baselines;
  std::vector<std::string> warnings;  // that the reporter was given in this attempt
  int64_t arena_planned_bytes = 0;
  int64_t arena_used_bytes = 0;
  RunTimes times;
};

/// Trains to the end, or until `stop` is requested: then a checkpoint is written and the Error is
/// CANCELLED/STOPPED. A loss that is not finite: FAILED_PRECONDITION/LOSS_NOT_FINITE naming the
/// step; the last good checkpoint stays. Faults are exceptions. `clock` decides when checkpoints
/// are written, never what they hold.
///
/// Several devices are connected (open_devices()), of one process or of several that train the job
/// together, each by this call: results depend on how many devices there are in all.
/// ABORTED/RANKS_DIFFER if the processes are given different jobs or checkpoints; throws RankLost
/// when another process goes. The first process alone writes. Keeps those that are stuck when it
/// throws RankStopped (replicated_session.h).
Result<TrainResult> train(const TrainJob& job, const std::vector<RankDevice>& devices, Files& files,
                          Reporter& reporter, std::stop_token stop,
                          const Clock& clock = system_clock());
/// The same on one device that the caller owns.
Result<TrainResult> train(const TrainJob& job, Backend& backend, Files& files, Reporter& reporter,
                          std::stop_token stop, const Clock& clock = system_clock());

}  // namespace trainyard
