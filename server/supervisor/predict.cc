#include "server/supervisor/predict.h"

#include <utility>

namespace trainyard::server {
namespace {

ErrandOptions errand_options(const PredictOptions& options) {
  return {options.paths,
          "predict",
          options.running_max,
          options.running_max,
          options.time_max_ms,
          make_error(ErrorCode::kResourceExhausted, "PREDICT_BUSY",
                     "too many predictions run and wait; call again in a moment"),
          make_error(ErrorCode::kDeadlineExceeded, "PREDICT_TIMEOUT",
                     "the prediction took too long; send fewer rows")};
}

}  // namespace

PredictRunner::PredictRunner(Supervisor& supervisor, PredictOptions options)
    : options_(std::move(options)), errands_(supervisor, errand_options(options_)) {}

void PredictRunner::run(const std::string& job_uid, const v1::PredictRequest& request,
                        Done<v1::PredictResponse> done) {
  v1::Assignment assignment;
  v1::PredictTask& task = *assignment.mutable_predict();
  task.set_model_dir(options_.paths.model(job_uid).string());
  *task.mutable_request() = request;
  task.set_threads(options_.threads);
  errands_.run(std::move(assignment), [done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    done(std::move(*outcome->mutable_predictions()));
  });
}

}  // namespace trainyard::server
