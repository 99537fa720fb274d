// server/serving/predict.h: calls to trained models, in workers that keep the models loaded: rows
// to predict (untrusted), text to continue, datasets to evaluate.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "server/serving/warm_workers.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

/// Thread-safe. Each `done` is called once. Errors: the worker's; RESOURCE_EXHAUSTED/*_BUSY;
/// DEADLINE_EXCEEDED/*_TIMEOUT; INTERNAL/WORKER_LOST.
class PredictRunner {
 public:
  /// `running_max` is the number of workers that compute calls of one kind concurrently. As many
  /// generations and as many evaluations may wait; of predictions, kWaitingMax for each model.
  PredictRunner(Supervisor& supervisor, WarmOptions options, int running_max,
                int64_t predict_time_max_ms, const Clock& clock = system_clock());

  void run(const WarmModel& model, const v1::PredictRequest& request,
           Done<v1::PredictResponse> done);

  /// `on_text` gets each piece of text, in order, before `done` is called. A generation may take up
  /// to kGenerateTimeMaxMs.
  CallNumber generate(const WarmModel& model, const v1::GenerateRequest& request,
                      std::function<void(const v1::GenerateResponse&)> on_text, Done<void> done);
  /// Cancels a generation whose caller has disconnected.
  void cancel_generate(CallNumber number) { workers_.cancel(number); }

  /// Evaluates the model on the dataset with this digest. May take up to kEvaluateTimeMaxMs.
  void evaluate(const WarmModel& model, const std::string& dataset_digest,
                const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done);

  /// Ends the workers of a deleted model; calls that wait for one get `error`.
  void forget(const std::string& job_uid, const Error& error) { workers_.forget(job_uid, error); }
  /// Ends all waiting and later calls with UNAVAILABLE/SERVER_DRAINING.
  void drain() { workers_.drain(); }

  static constexpr int64_t kGenerateTimeMaxMs = 600'000;
  static constexpr int64_t kEvaluateTimeMaxMs = 3600'000;
  static constexpr int64_t kWaitingMax = 256;

 private:
  const StatePaths paths_;
  WarmWorkers workers_;
};

}  // namespace trainyard::server
