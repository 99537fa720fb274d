// server/serving/predict.h: calls to trained models, in workers that keep them: rows to predict
// (untrusted), text to continue, datasets to evaluate.
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
  /// `running_max`: workers that compute a kind of call at a time. Of generations and evaluations
  /// the same number may wait, of predictions kWaitingMax for each model.
  PredictRunner(Supervisor& supervisor, WarmOptions options, int running_max,
                int64_t predict_time_max_ms, const Clock& clock = system_clock());

  void run(const WarmModel& model, const v1::PredictRequest& request,
           Done<v1::PredictResponse> done);

  /// `on_text` gets each piece, in order, before `done`. Takes up to kGenerateTimeMaxMs.
  CallNumber generate(const WarmModel& model, const v1::GenerateRequest& request,
                      std::function<void(const v1::GenerateResponse&)> on_text, Done<void> done);
  /// The caller disconnected.
  void cancel_generate(CallNumber number) { workers_.cancel(number); }

  /// On the dataset with that digest. Takes up to kEvaluateTimeMaxMs.
  void evaluate(const WarmModel& model, const std::string& dataset_digest,
                const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done);

  /// The model is deleted: nobody needs its workers, and calls that wait for one get `error`.
  void forget(const std::string& job_uid, const Error& error) { workers_.forget(job_uid, error); }
  /// Answers all waiting and later calls with UNAVAILABLE/SERVER_DRAINING.
  void drain() { workers_.drain(); }

  static constexpr int64_t kGenerateTimeMaxMs = 600'000;
  static constexpr int64_t kEvaluateTimeMaxMs = 3600'000;
  static constexpr int64_t kWaitingMax = 256;

 private:
  const StatePaths paths_;
  WarmWorkers workers_;
};

}  // namespace trainyard::server
