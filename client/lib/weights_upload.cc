#include "client/lib/weights_upload.h"

namespace trainyard::client {
namespace {

constexpr Rpc<v1::CreateModelRequest, v1::Model> kCreateModel{"ModelService/CreateModel"};

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

}  // namespace trainyard::client
