#include "client/lib/dataset_upload.h"

#include <algorithm>
#include <chrono>

#include "proto/spec/dataset_format.h"
#include "src/base/folder_files.h"
#include "src/base/wait_for_stop.h"

namespace trainyard::client {
namespace {

// A repeated call with the same content and options returns the same version. The second row is
// for paths on the server, which reads their files before it replies.
constexpr Rpc<v1::CreateDatasetRequest, v1::Dataset> kCreateDataset{"DatasetService/CreateDataset"};
constexpr Rpc<v1::CreateDatasetRequest, v1::Dataset> kCreateDatasetOfServer{
    "DatasetService/CreateDataset", Repeat::kSome, kHourMs};

using std::chrono::milliseconds;
constexpr milliseconds kPollFirst{20};
constexpr milliseconds kPollMax{1000};

Result<v1::Dataset> wait_until_ready(Client& client, v1::Dataset dataset, std::stop_token stop) {
  milliseconds pause = kPollFirst;
  while (dataset.state() == v1::Dataset::INGESTING) {
    wait_for_stop(stop, pause);
    if (stop.stop_requested()) {
      return make_error(ErrorCode::kCancelled, "INTERRUPTED",
                        dataset.name() + ": no longer waiting; the server keeps reading it");
    }
    pause = std::min(pause * 3 / 2, kPollMax);
    ASSIGN_OR_RETURN(dataset, client.call(rpc::kGetDataset, dataset.name()));
  }
  if (dataset.state() == v1::Dataset::FAILED) {
    return make_error(ErrorCode::kInvalidArgument,
                      dataset.reason().empty() ? "DATASET_INVALID" : dataset.reason(),
                      dataset.message());
  }
  return dataset;
}

}  // namespace

std::vector<std::filesystem::path> dataset_paths(const v1::DatasetFile& file,
                                                 const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const spec::NamedSource& source : spec::sources_of(file)) {
    paths.push_back(source.on_server ? std::filesystem::path() : folder / source.path);
  }
  return paths;
}

bool is_data_folder(const v1::DatasetFile& file, const std::filesystem::path& path) {
  std::error_code failed;
  return spec::format_of(file).about.folder() && std::filesystem::is_directory(path, failed);
}

Result<v1::Dataset> ensure_dataset(Client& client, const v1::DatasetFile& file,
                                   const std::filesystem::path& folder,
                                   const DatasetObserver& observer, std::stop_token stop) {
  v1::CreateDatasetRequest request;
  request.set_parent(client.parent());
  request.set_dataset_id(file.name());
  *request.mutable_spec() = spec::dataset_spec(file);
  const std::vector<std::filesystem::path> paths = dataset_paths(file, folder);
  if (std::ranges::any_of(paths, [](const auto& path) { return !path.empty(); })) {
    // Uploads may take minutes, so first check that the server accepts the name and the options.
    request.set_validate_only(true);
    if (const Result<v1::Dataset> checked = client.call(kCreateDataset, request); !checked.ok()) {
      return checked.error();
    }
    request.set_validate_only(false);
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].empty()) continue;
    ASSIGN_OR_RETURN(std::string sha256,
                     is_data_folder(file, paths[i])
                         ? upload_folder(client, paths[i], observer.uploading, stop)
                         : upload_file(client, paths[i], observer.uploading, stop));
    request.mutable_spec()->mutable_sources(static_cast<int>(i))->set_sha256(std::move(sha256));
  }
  const bool reads_first = std::ranges::any_of(paths, &std::filesystem::path::empty);
  ASSIGN_OR_RETURN(v1::Dataset dataset,
                   client.call(reads_first ? kCreateDatasetOfServer : kCreateDataset, request));
  if (dataset.state() == v1::Dataset::INGESTING && observer.ingesting) observer.ingesting(dataset);
  return wait_until_ready(client, std::move(dataset), stop);
}

}  // namespace trainyard::client
