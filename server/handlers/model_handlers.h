// server/handlers/model_handlers.h: ModelService without its transport. Thread-safe.
#pragma once

#include <atomic>
#include "server/config/paths.h"
#include "server/files/disk_watch.h"
#include "server/files/uploads.h"
#include "server/processes/errands.h"
#include "server/serving/predict.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

class ModelHandlers {
 public:
  /// The daemon's parts that these handlers use. They must outlive the handlers.
  struct Parts {
    const StatePaths& paths;
    Files& files;
    Store& store;
    Uploads& uploads;
    PredictRunner& predict;
    Errands& errands;
    DiskWatch& disk;
    const std::atomic<bool>& draining;
  };
  explicit ModelHandlers(const Parts& parts) : parts_(parts) {}
  void create(const v1::CreateModelRequest& request, Done<v1::Model> done);
  Result<Model> find(const std::string& name) const;
  Result<v1::Model> get(const v1::GetModelRequest& request) const;
  Result<v1::ListModelsResponse> list(const v1::ListModelsRequest& request) const;
  void predict(const v1::PredictRequest& request, Done<v1::PredictResponse> done);
  /// Like PredictRunner::generate; a refusal is returned immediately, and `done` is then not
  /// called.
  Result<CallNumber> generate(const v1::GenerateRequest& request,
                              std::function<void(const v1::GenerateResponse&)> on_text,
                              Done<void> done);
  void cancel_generate(CallNumber call) { parts_.predict.cancel_generate(call); }
  void evaluate(const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done);
  Status remove(const v1::DeleteModelRequest& request);

 private:
  /// FAILED_PRECONDITION/PREDICT_UNSUPPORTED for weights only.
  Result<Model> find_network(const std::string& name) const;

  const Parts parts_;
};

}  // namespace trainyard::server
