#include "client/lib/weights_upload.h"

namespace trainyard::client {
namespace {

constexpr Rpc<v1::CreateModelRequest, v1::Model> kCreateModel{"ModelService/CreateModel"};
// A worker writes all weights.
constexpr Rpc<v1::CreateModelRequest, v1::Model> kImportModel{"ModelService/CreateModel",
                                                              Repeat::kSome, 3'600'000};

}  // namespace

Result<v1::Model> ensure_weights(Client& client, const std::filesystem::path& path,
                                 const std::string& name, const UploadObserver& observer,
                                 std::stop_token stop) {
  v1::CreateModelRequest request;
  request.set_parent(client.parent());
  request.set_model_id(name);
  ASSIGN_OR_RETURN(*request.mutable_sha256(), upload_weights(client, path, observer, stop));
  return client.call(kCreateModel, request);
}

Result<v1::Model> import_model(Client& client, const std::filesystem::path& weights,
                               const std::filesystem::path& description, const std::string& name,
                               const UploadObserver& observer, std::stop_token stop) {
  v1::CreateModelRequest request;
  request.set_parent(client.parent());
  request.set_model_id(name);
  ASSIGN_OR_RETURN(*request.mutable_description_sha256(),
                   upload_file(client, description, observer, stop));
  ASSIGN_OR_RETURN(*request.mutable_sha256(), upload_weights(client, weights, observer, stop));
  return client.call(kImportModel, request);
}

}  // namespace trainyard::client
