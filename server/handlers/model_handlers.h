// server/handlers/model_handlers.h: ModelService without its transport. Thread-safe.
#pragma once

#include "server/files/uploads.h"
#include "server/handlers/context.h"
#include "src/base/result.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

class ModelHandlers {
 public:
  ModelHandlers(ServiceContext& service, Uploads& uploads) : service_(service), uploads_(uploads) {}
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
  void evaluate(const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done);
  Status remove(const v1::DeleteModelRequest& request);

 private:
  /// FAILED_PRECONDITION/PREDICT_UNSUPPORTED for weights only.
  Result<Model> find_network(const std::string& name) const;

  ServiceContext& service_;
  Uploads& uploads_;
};

}  // namespace trainyard::server
