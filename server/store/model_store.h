// server/store/model_store.h: stores models. JobStore::update_attempt creates the row of a trained
// model together with the job's transition to SUCCEEDED. ModelStore::create() creates the row of
// uploaded weights. Thread-safe; see server/store/store.h.
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
  std::string project;
  std::string id;  // equals the ID of the job that trained it, if a job did
  // Names the folder of its files: the uid of the job that trained it, or one of its own; empty:
  // the model is uploaded weights only.
  std::string job_uid;
  std::string digest;
  int64_t size_bytes = 0;
  int64_t parameter_count = 0;
  v1::Progress metrics;  // only its field `metrics` is used: the final values
  v1::DatasetSchema schema;
  std::string dataset;  // full name of the training dataset, with its version; empty if unknown
  int64_t create_time_us = 0;
  std::string owner;  // of the job that trained it, or who created it; empty if unknown
  int64_t tensor_count = 0;
  std::vector<v1::WeightTensor> tensors;  // only set by find()

  bool weights_alone() const { return job_uid.empty(); }
  /// A job's model names its dataset.
  bool imported() const { return !job_uid.empty() && dataset.empty(); }
  std::string name() const { return "projects/" + project + "/models/" + id; }
};
v1::Model to_proto(const Model& model);

/// A model to be created from uploaded weights, alone or with a description.
struct NewWeights {
  std::string project;
  std::string id;
  std::string owner;
  std::string sha256;  // digest of a complete upload, or of the weights in the model's folder
  // Only of a model that predicts: the name of its folder, and the schema of its data.
  std::string folder_uid = {};
  v1::DatasetSchema schema = {};
  int64_t size_bytes = 0;
  int64_t parameter_count = 0;
  std::vector<v1::WeightTensor> tensors;
};

struct ModelPage {
  std::vector<Model> models;  // newest first
  std::string next_page_token;
};

class ModelStore {
 public:
  explicit ModelStore(StoreCore& core) : core_(core) {}

  // error: MODEL_NOT_FOUND
  Result<Model> find(const std::string& project, const std::string& id) const;
  Result<ModelPage> list(const std::string& project, int32_t page_size,
                         const std::string& page_token) const;
  /// Creates the row, or returns the existing model with this ID if it has the same content.
  /// Errors: ALREADY_EXISTS/MODEL_EXISTS; FAILED_PRECONDITION/UPLOAD_INCOMPLETE.
  void create(NewWeights weights, Done<Model> done);
  /// Removes the row and returns the model, so that the caller can delete its files. Errors:
  /// MODEL_NOT_FOUND; FAILED_PRECONDITION/MODEL_IN_USE, which names the unfinished job that starts
  /// from the model.
  Result<Model> remove(const std::string& project, const std::string& id);

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
