// server/service/model_handlers.h: ModelService without its transport. Thread-safe.
#pragma once

#include "server/service/context.h"
#include "src/base/result.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

class ModelHandlers {
 public:
  explicit ModelHandlers(ServiceContext& service) : service_(service) {}
  Result<Model> find(const std::string& name) const;
  Result<v1::Model> get(const v1::GetModelRequest& request) const;
  Result<v1::ListModelsResponse> list(const v1::ListModelsRequest& request) const;
  void predict(const v1::PredictRequest& request, Done<v1::PredictResponse> done);
  /// As PredictRunner::generate; a refusal comes at once, and then `done` is not called.
  Result<Errand> generate(const v1::GenerateRequest& request,
                          std::function<void(const v1::GenerateResponse&)> on_text,
                          Done<void> done);
  void evaluate(const v1::EvaluateRequest& request, Done<v1::EvaluateResponse> done);
  Status remove(const v1::DeleteModelRequest& request);

 private:
  ServiceContext& service_;
};

}  // namespace trainyard::server
