// tests/engine/run_job.h: one training run on the device that tests train on.
#pragma once

#include <stop_token>
#include <utility>

#include "src/base/files.h"
#include "src/train/trainer.h"
#include "tests/engine/tested_backend.h"

namespace trainyard::testing {

inline Result<TrainResult> run_job(const TrainJob& job, Reporter& recorder,
                                   std::stop_token stop = {}) {
  const auto backend = make_tested_backend(job.threads);
  return train(job, *backend, local_files(), recorder, std::move(stop));
}

}  // namespace trainyard::testing
