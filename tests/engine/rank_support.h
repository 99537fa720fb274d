// tests/engine/rank_support.h: jobs on several devices that are host backends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/train/trainer.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

std::vector<RankDevice> connected(std::vector<std::shared_ptr<Backend>> backends);
std::vector<RankDevice> cpu_devices(int64_t ranks);

/// No batch normalization, whose statistics are each rank's own; everything else that draws or
/// reduces over rows.
ModelSpec plain_model();
/// 30 steps of it on the dataset in the workspace.
TrainJob plain_job(const Workspace& w, const std::string& name);
/// A refusal fails the test.
TrainResult run(const TrainJob& job, int64_t ranks, Recorder& recorder);

/// The trained model's file.
std::string weights_of(const TrainJob& job);

}  // namespace trainyard::testing
