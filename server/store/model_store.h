// server/store/model_store.h: trained models. A model's row is made by JobStore::update_attempt
// with the move to SUCCEEDED. Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

class StoreCore;

struct Model {
  std::string tenant;
  std::string id;       // the id of the job that trained it
  std::string job_uid;  // names the directory of its files
  std::string digest;
  int64_t size_bytes = 0;
  int64_t parameter_count = 0;
  v1::Progress metrics;  // .metrics: the final ones
  v1::DatasetSchema schema;
  int64_t create_time_us = 0;

  std::string name() const { return "tenants/" + tenant + "/models/" + id; }
};
v1::Model to_proto(const Model& model);

struct ModelPage {
  std::vector<Model> models;  // newest first
  std::string next_page_token;
};

class ModelStore {
 public:
  explicit ModelStore(StoreCore& core) : core_(core) {}

  Result<Model> find(const std::string& tenant, const std::string& id) const;  // MODEL_NOT_FOUND
  Result<ModelPage> list(const std::string& tenant, int32_t page_size,
                         const std::string& page_token) const;
  /// Removes the row; returns it, so that its files can go. MODEL_NOT_FOUND.
  void remove(std::string tenant, std::string id, Done<Model> done);
  Result<Model> remove(const std::string& tenant, const std::string& id);

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
