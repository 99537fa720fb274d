#include "server/serving/predict.h"

#include <array>
#include <utility>

namespace trainyard::server {
namespace {

using Kind = WarmWorkers::Kind;

CallLimits call_limits(int running_max, int64_t time_max_ms, const std::string& reason,
                       const std::string& advice) {
  CallLimits limits;
  limits.running_max = running_max;
  limits.time_max_ms = time_max_ms;
  limits.model_calls_max = limits.calls_max = running_max;
  limits.busy =
      make_error(ErrorCode::kResourceExhausted, reason + "_BUSY",
                 "too many calls of this kind are running and waiting; call again in a moment");
  limits.late = make_error(ErrorCode::kDeadlineExceeded, reason + "_TIMEOUT",
                           "it took too long and was stopped; " + advice);
  return limits;
}

/// Returns the limits, indexed by kind.
std::array<CallLimits, WarmWorkers::kKinds> all_limits(int running_max, int64_t time_max_ms) {
  CallLimits predict = call_limits(running_max, time_max_ms, "PREDICT", "send fewer rows");
  predict.model_calls_max = PredictRunner::kWaitingMax;
  predict.calls_max = 16 * PredictRunner::kWaitingMax;
  predict.batch_calls_max = 64;
  return {std::move(predict),
          call_limits(running_max, PredictRunner::kGenerateTimeMaxMs, "GENERATE",
                      "request fewer tokens"),
          call_limits(running_max, PredictRunner::kEvaluateTimeMaxMs, "EVALUATE",
                      "use a dataset with fewer rows")};
}

}  // namespace

PredictRunner::PredictRunner(Supervisor& supervisor, WarmOptions options, int running_max,
                             int64_t predict_time_max_ms, const Clock& clock)
    : paths_(options.paths),
      workers_(supervisor, std::move(options), all_limits(running_max, predict_time_max_ms),
               clock) {}

void PredictRunner::run(const WarmModel& model, const v1::PredictRequest& request,
                        Done<v1::PredictResponse> done) {
  v1::ServeCall call;
  *call.mutable_predict() = request;
  workers_.submit(Kind::kPredict, model, std::move(call),
                  [done = std::move(done)](Result<v1::Outcome> outcome) {
                    if (!outcome.ok()) return done(std::move(outcome).error());
                    done(std::move(*outcome->mutable_predictions()));
                  });
}

CallNumber PredictRunner::generate(const WarmModel& model, const v1::GenerateRequest& request,
                                   std::function<void(const v1::GenerateResponse&)> on_text,
                                   Done<void> done) {
  v1::ServeCall call;
  *call.mutable_generate() = request;
  return workers_.submit(
      Kind::kGenerate, model, std::move(call),
      [done = std::move(done)](Result<v1::Outcome> outcome) {
        done(outcome.ok() ? Status() : Status(std::move(outcome).error()));
      },
      std::move(on_text));
}

void PredictRunner::evaluate(const WarmModel& model, const std::string& dataset_digest,
                             const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done) {
  v1::ServeCall call;
  *call.mutable_evaluate()->mutable_request() = request;
  call.mutable_evaluate()->set_dataset_dir(paths_.dataset(dataset_digest).string());
  workers_.submit(Kind::kEvaluate, model, std::move(call),
                  [done = std::move(done)](Result<v1::Outcome> outcome) {
                    if (!outcome.ok()) return done(std::move(outcome).error());
                    done(std::move(*outcome->mutable_evaluation()));
                  });
}

}  // namespace trainyard::server
