// server/supervisor/measure.h: measures how much workspace a job's kernels need, with a worker that
// prepares them as for training. Kernels choose their algorithms by the machine's instruction set
// and the job's threads; the daemon has no kernels and does not guess.
#pragma once

#include "server/supervisor/errand.h"

namespace trainyard::server {

/// Thread-safe.
class MeasureRunner {
 public:
  MeasureRunner(Supervisor& supervisor, StatePaths paths);

  /// On the device that the task names, a GPU of this UUID. `done` is called once, with the bytes.
  /// RESOURCE_EXHAUSTED/PLAN_BUSY; DEADLINE_EXCEEDED/PLAN_TIMEOUT; INTERNAL/WORKER_LOST; the
  /// worker's (MODEL_OP_UNSUPPORTED, DEVICE_BUSY).
  void run(v1::MeasureTask task, const std::string& gpu_uuid, Done<int64_t> done);
  void drain() { errands_.drain(); }

 private:
  ErrandRunner errands_;
};

}  // namespace trainyard::server
