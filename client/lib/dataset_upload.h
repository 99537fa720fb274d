// client/lib/dataset_upload.h: ensures that a dataset exists on the server, and creates it from
// local files if not.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "client/lib/upload.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::client {

struct DatasetObserver {
  UploadObserver uploading;
  std::function<void(const v1::Dataset&)> ingesting;  // called once, if the server has to ingest
};

/// Uploads the files and folders that `file` names (relative to `folder`), creates the dataset and
/// waits until it is READY. Content that the server already has is not sent again. A failed ingest
/// is an error with the reason and message that the server stored.
Result<v1::Dataset> ensure_dataset(Client& client, const v1::DatasetFile& file,
                                   const std::filesystem::path& folder,
                                   const DatasetObserver& observer, std::stop_token stop);

/// A dataset's message with the local path of each of its sources; empty for a file on the server.
struct LocalDataset {
  v1::DatasetSpec spec;
  std::vector<std::filesystem::path> paths;
};
/// Adds to spec::dataset_spec(file) the files of the tokenizer that `file` names. Refuses a path
/// without a tokenizer: NOT_FOUND/FILE_NOT_FOUND.
Result<LocalDataset> local_dataset(const v1::DatasetFile& file,
                                   const std::filesystem::path& folder);

/// Returns whether `path` is a folder that is a source of `file`, whose format allows folders.
bool is_data_folder(const v1::DatasetFile& file, const std::filesystem::path& path);

}  // namespace trainyard::client
