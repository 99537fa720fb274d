// server/handlers/dataset_handlers.h: DatasetService without its transport. Thread-safe.
#pragma once

#include <atomic>
#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/files/disk_watch.h"
#include "server/files/uploads.h"
#include "server/processes/errands.h"
#include "server/processes/executor.h"
#include "server/processes/ingest.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {

v1::Upload to_proto(const Upload& upload);

class DatasetHandlers {
 public:
  /// The daemon's parts that these handlers use. They must outlive the handlers.
  struct Parts {
    const Config& config;
    const StatePaths& paths;
    const Clock& clock;
    Files& files;
    Store& store;
    Uploads& uploads;
    IngestRunner& ingest;
    Errands& errands;
    DiskWatch& disk;
    Executor& executor;  // goes on once a worker has read the server's own files
    const std::atomic<bool>& draining;
  };
  explicit DatasetHandlers(const Parts& parts) : parts_(parts) {}
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

  const Parts parts_;
};

}  // namespace trainyard::server
