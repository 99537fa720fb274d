// server/handlers/dataset_handlers.h: DatasetService without its transport. Thread-safe.
#pragma once

#include "server/files/uploads.h"
#include "server/handlers/context.h"
#include "src/base/result.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {

v1::Upload to_proto(const Upload& upload);

class DatasetHandlers {
 public:
  explicit DatasetHandlers(ServiceContext& service);
  Uploads& uploads() { return uploads_; }

  Result<v1::Upload> get_upload(const v1::GetUploadRequest& request) const;
  /// Answers later if the server's own files must be read first.
  void create(const v1::CreateDatasetRequest& request, Done<v1::Dataset> done);
  Result<v1::Dataset> get(const v1::GetDatasetRequest& request) const;
  Result<v1::ListDatasetsResponse> list(const v1::ListDatasetsRequest& request) const;
  Status remove(const v1::DeleteDatasetRequest& request);

 private:
  /// Of a request whose sources all have their digest. `stamps`: v1::IngestTask.stamps.
  Result<v1::Dataset> create_known(const v1::CreateDatasetRequest& request,
                                   const std::vector<std::string>& stamps);

  ServiceContext& service_;
  Uploads uploads_;
};

}  // namespace trainyard::server
