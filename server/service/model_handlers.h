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
  Status remove(const v1::DeleteModelRequest& request);

 private:
  ServiceContext& service_;
};

}  // namespace trainyard::server
