#include "server/supervisor/predict.h"

#include <utility>

namespace trainyard::server {
namespace {

ErrandOptions errand_options(const PredictOptions& options, const std::string& kind,
                             int64_t time_max_ms, const std::string& reason,
                             const std::string& advice) {
  return {options.paths,
          kind,
          options.running_max,
          options.running_max,
          time_max_ms,
          make_error(ErrorCode::kResourceExhausted, reason + "_BUSY",
                     "too many calls of this kind are running and waiting; call again in a moment"),
          make_error(ErrorCode::kDeadlineExceeded, reason + "_TIMEOUT",
                     "it took too long and was stopped; " + advice)};
}

}  // namespace

PredictRunner::PredictRunner(Supervisor& supervisor, PredictOptions options)
    : options_(std::move(options)),
      predicts_(supervisor, errand_options(options_, "predict", options_.time_max_ms, "PREDICT",
                                           "send fewer rows")),
      generates_(supervisor, errand_options(options_, "generate", kGenerateTimeMaxMs, "GENERATE",
                                            "ask for fewer tokens")),
      evaluates_(supervisor, errand_options(options_, "evaluate", kEvaluateTimeMaxMs, "EVALUATE",
                                            "use a dataset with fewer rows")) {}

void PredictRunner::run(const std::string& job_uid, const v1::PredictRequest& request,
                        Done<v1::PredictResponse> done) {
  v1::Assignment assignment;
  v1::PredictTask& task = *assignment.mutable_predict();
  task.set_model_dir(options_.paths.model(job_uid).string());
  *task.mutable_request() = request;
  task.set_threads(options_.threads);
  predicts_.run(std::move(assignment), [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    done(std::move(*outcome->mutable_predictions()));
  });
}

Errand PredictRunner::generate(const std::string& job_uid, const v1::GenerateRequest& request,
                               std::function<void(const v1::GenerateResponse&)> on_text,
                               Done<void> done) {
  v1::Assignment assignment;
  v1::GenerateTask& task = *assignment.mutable_generate();
  task.set_model_dir(options_.paths.model(job_uid).string());
  *task.mutable_request() = request;
  task.set_threads(options_.threads);
  return generates_.run(
      std::move(assignment),
      [done = std::move(done)](Result<v1::Outcome> outcome) {
        done(outcome.ok() ? Status() : Status(std::move(outcome).error()));
      },
      [on_text = std::move(on_text)](const v1::WorkerReport& report) {
        if (report.has_generated()) on_text(report.generated());
      });
}

void PredictRunner::evaluate(const std::string& job_uid, const std::string& dataset_digest,
                             const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done) {
  v1::Assignment assignment;
  v1::EvaluateTask& task = *assignment.mutable_evaluate();
  task.set_model_dir(options_.paths.model(job_uid).string());
  task.set_dataset_dir(options_.paths.dataset(dataset_digest).string());
  *task.mutable_request() = request;
  task.set_threads(options_.threads);
  evaluates_.run(std::move(assignment), [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    done(std::move(*outcome->mutable_evaluation()));
  });
}

void PredictRunner::drain() {
  for (ErrandRunner* errands : {&predicts_, &generates_, &evaluates_}) errands->drain();
}

}  // namespace trainyard::server
