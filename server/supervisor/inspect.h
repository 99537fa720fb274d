// server/supervisor/inspect.h: reads the header of an uploaded safetensors file, in a worker
// process, because its bytes are untrusted.
#pragma once

#include <vector>

#include "server/supervisor/errand.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

/// Thread-safe.
class InspectRunner {
 public:
  InspectRunner(Supervisor& supervisor, StatePaths paths);

  /// Reads the upload with this digest. `done` is called once. Errors: the worker's
  /// (MODEL_FILE_INVALID); RESOURCE_EXHAUSTED/INSPECT_BUSY; DEADLINE_EXCEEDED/INSPECT_TIMEOUT;
  /// INTERNAL/WORKER_LOST.
  void run(const std::string& sha256, Done<std::vector<v1::WeightTensor>> done);
  void drain() { errands_.drain(); }

 private:
  const StatePaths paths_;
  ErrandRunner errands_;
};

}  // namespace trainyard::server
