// client/lib/dataset_upload.h: a dataset on the server, created from local files if it does not
// exist yet.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "client/lib/upload.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::client {

struct DatasetObserver {
  UploadObserver uploading;
  std::function<void(const v1::Dataset&)> ingesting;  // once, if the server has to work
};

/// Uploads the files and folders that `file` names (relative to `folder`), creates the dataset and
/// waits until it is READY. Content that the server has is not sent again. A failed ingest is an
/// error with the reason and the sentence that the server stored.
Result<v1::Dataset> ensure_dataset(Client& client, const v1::DatasetFile& file,
                                   const std::filesystem::path& folder,
                                   const DatasetObserver& observer, std::stop_token stop);

/// The paths that belong to spec::dataset_spec(file).sources(), in order; empty for one of the
/// server's own.
std::vector<std::filesystem::path> dataset_paths(const v1::DatasetFile& file,
                                                 const std::filesystem::path& folder);

/// True for a folder that is a source of `file`, whose format allows it.
bool is_data_folder(const v1::DatasetFile& file, const std::filesystem::path& path);

}  // namespace trainyard::client
