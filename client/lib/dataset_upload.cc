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

// Calls that follow one that the server did not answer in time. Each has the timeout of a call.
constexpr int kLateMax = 5;

/// Makes a call again that was not answered in time: the server may be busy, and the call may have
/// had its effect. A repeated call returns the same version.
template <typename F>
Result<v1::Dataset> call_until_answered(const std::stop_token& stop, const F& call) {
  Result<v1::Dataset> dataset = call();
  for (int i = 0; i < kLateMax && !stop.stop_requested(); ++i) {
    if (dataset.ok() || dataset.error().code != ErrorCode::kDeadlineExceeded) break;
    dataset = call();
  }
  return dataset;
}

/// Says that the dataset exists although the server does not answer.
Error no_answer(const std::string& name, Error error) {
  error.message = name + " was created, and the server keeps reading it, but does not answer (" +
                  error.message + "); 'trainyard dataset get " + std::string(short_name(name)) +
                  "' shows it later";
  return error;
}

Result<v1::Dataset> wait_until_ready(Client& client, v1::Dataset dataset, std::stop_token stop) {
  milliseconds pause = kPollFirst;
  while (dataset.state() == v1::Dataset::INGESTING) {
    wait_for_stop(stop, pause);
    if (stop.stop_requested()) {
      return make_error(ErrorCode::kCancelled, "INTERRUPTED",
                        dataset.name() + ": no longer waiting; the server keeps reading it");
    }
    pause = std::min(pause * 3 / 2, kPollMax);
    Result<v1::Dataset> found =
        call_until_answered(stop, [&] { return client.call(rpc::kGetDataset, dataset.name()); });
    if (!found.ok() && found.error().code == ErrorCode::kDeadlineExceeded) {
      return no_answer(dataset.name(), std::move(found).error());
    }
    if (!found.ok()) return found;
    dataset = std::move(found).value();
  }
  if (dataset.state() == v1::Dataset::FAILED) {
    return make_error(ErrorCode::kInvalidArgument,
                      dataset.reason().empty() ? "DATASET_INVALID" : dataset.reason(),
                      dataset.message());
  }
  return dataset;
}

void add_source(v1::DatasetSource::Role role, const std::filesystem::path& path,
                LocalDataset& dataset) {
  v1::DatasetSource& source = *dataset.spec.add_sources();
  source.set_role(role);
  source.set_filename(shown_name(path));
  dataset.paths.push_back(path);
}

/// Adds the files of a tokenizer, which is one file or those of a model's folder.
Status add_tokenizer(const std::filesystem::path& path, const std::string& field,
                     LocalDataset& dataset) {
  std::error_code failed;
  const auto refuse = [&](const std::string& what) {
    Error e = field_error("FILE_NOT_FOUND", "dataset." + field, path.string() + ": " + what);
    e.code = ErrorCode::kNotFound;
    return e;
  };
  if (std::filesystem::is_regular_file(path, failed)) {
    add_source(v1::DatasetSource::TOKENIZER, path, dataset);
    return {};
  }
  if (!std::filesystem::is_directory(path, failed)) return refuse("no such file or folder");
  bool has_tokens = false;
  for (const auto& [role, name] : spec::tokenizer_files()) {
    if (!std::filesystem::is_regular_file(path / name, failed)) continue;
    add_source(role, path / name, dataset);
    has_tokens = has_tokens || role == v1::DatasetSource::TOKENIZER_JSON ||
                 role == v1::DatasetSource::TOKENIZER_MODEL ||
                 role == v1::DatasetSource::TEKKEN_JSON;
  }
  if (!has_tokens) {
    return refuse(
        "the folder has no tokenizer, expected one of tokenizer.json, tokenizer.model and "
        "tekken.json");
  }
  return {};
}

}  // namespace

Result<LocalDataset> local_dataset(const v1::DatasetFile& file,
                                   const std::filesystem::path& folder) {
  LocalDataset dataset{spec::dataset_spec(file), {}};
  for (const spec::NamedSource& source : spec::sources_of(file)) {
    dataset.paths.push_back(source.on_server ? std::filesystem::path() : folder / source.path);
  }
  if (spec::tokenizer_path(file).empty()) return dataset;
  const std::filesystem::path at = folder / spec::tokenizer_path(file);
  if (Status s = add_tokenizer(at, spec::tokenizer_field(file), dataset); !s.ok()) {
    return std::move(s).error();
  }
  return dataset;
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
  ASSIGN_OR_RETURN(LocalDataset local, local_dataset(file, folder));
  *request.mutable_spec() = std::move(local.spec);
  const std::vector<std::filesystem::path>& paths = local.paths;
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
  ASSIGN_OR_RETURN(v1::Dataset dataset, reads_first ? client.call(kCreateDatasetOfServer, request)
                                                    : call_until_answered(stop, [&] {
                                                        return client.call(kCreateDataset, request);
                                                      }));
  if (dataset.state() == v1::Dataset::INGESTING && observer.ingesting) observer.ingesting(dataset);
  return wait_until_ready(client, std::move(dataset), stop);
}

}  // namespace trainyard::client
