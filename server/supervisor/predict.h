// server/supervisor/predict.h: predicts raw rows, in a worker process, because they are untrusted.
#pragma once

#include <string>

#include "server/supervisor/errand.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

struct PredictOptions {
  StatePaths paths;
  int running_max = 2;  // as many again may wait
  int64_t time_max_ms = 60'000;
  int threads = 1;
};

/// Thread-safe.
class PredictRunner {
 public:
  PredictRunner(Supervisor& supervisor, PredictOptions options);

  /// With the model of that job. `done` is called once. Refusals: what the worker refused
  /// (DATASET_INVALID); RESOURCE_EXHAUSTED/PREDICT_BUSY; DEADLINE_EXCEEDED/PREDICT_TIMEOUT;
  /// INTERNAL/WORKER_LOST.
  void run(const std::string& job_uid, const v1::PredictRequest& request,
           Done<v1::PredictResponse> done);
  /// Answers what waits, and every later call, with UNAVAILABLE/SERVER_DRAINING.
  void drain() { errands_.drain(); }

 private:
  const PredictOptions options_;
  ErrandRunner errands_;
};

}  // namespace trainyard::server
