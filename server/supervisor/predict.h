// server/supervisor/predict.h: requests to trained models, each in its own worker process: rows to
// predict (untrusted), text to continue, datasets to evaluate.
#pragma once

#include <functional>
#include <string>

#include "server/supervisor/errand.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

struct PredictOptions {
  StatePaths paths;
  int running_max = 2;  // of each kind of request; the same number may wait
  int64_t time_max_ms = 60'000;
  int threads = 1;
};

/// Thread-safe. Each `done` is called once. Errors: the worker's; RESOURCE_EXHAUSTED/*_BUSY;
/// DEADLINE_EXCEEDED/*_TIMEOUT; INTERNAL/WORKER_LOST.
class PredictRunner {
 public:
  PredictRunner(Supervisor& supervisor, PredictOptions options);

  /// With that job's model.
  void run(const std::string& job_uid, const v1::PredictRequest& request,
           Done<v1::PredictResponse> done);

  /// `on_text` gets each piece, in order, before `done`. Takes up to kGenerateTimeMaxMs.
  Errand generate(const std::string& job_uid, const v1::GenerateRequest& request,
                  std::function<void(const v1::GenerateResponse&)> on_text, Done<void> done);
  /// The caller disconnected.
  void cancel_generate(Errand errand) { generates_.cancel(errand); }

  /// On the dataset with that digest. Takes up to kEvaluateTimeMaxMs.
  void evaluate(const std::string& job_uid, const std::string& dataset_digest,
                const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done);

  /// Answers all waiting and later calls with UNAVAILABLE/SERVER_DRAINING.
  void drain();

  static constexpr int64_t kGenerateTimeMaxMs = 600'000;
  static constexpr int64_t kEvaluateTimeMaxMs = 3600'000;

 private:
  const PredictOptions options_;
  ErrandRunner predicts_, generates_, evaluates_;
};

}  // namespace trainyard::server
