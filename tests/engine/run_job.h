// tests/engine/run_job.h: trains a job on the CPU, or on the GPU that TRAINYARD_TEST_DEVICE names.
#pragma once

#include <stop_token>
#include <utility>

#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"
#include "tests/engine/tested_backend.h"

namespace trainyard::testing {

inline Result<TrainResult> run_job(const TrainJob& job, Reporter& recorder,
                                   std::stop_token stop = {}, Files& files = local_files(),
                                   const Clock& clock = system_clock()) {
  const auto backend = make_tested_backend(job.threads);
  return train(job, *backend, files, recorder, std::move(stop), clock);
}

}  // namespace trainyard::testing
