#include "client/lib/dataset_upload.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "client/lib/dataset_format.h"
#include "src/base/folder_files.h"
#include "src/base/wait_for_stop.h"
#include "trainyard/v1/spec_options.pb.h"

namespace trainyard::client {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPollFirst{20};
constexpr milliseconds kPollMax{1000};

/// Fills texts that are left out with what the path's ending asks for: tabs separate a .tsv.
void fill_by_ending(std::string_view path, google::protobuf::Message& options) {
  constexpr std::array<std::string_view, 1> kGzip = {".gz"};
  if (has_ending(path, kGzip)) path.remove_suffix(kGzip[0].size());
  const auto& type = *options.GetDescriptor();
  const auto& reflection = *options.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const v1::ByEnding& rule = type.field(i)->options().GetExtension(v1::by_ending);
    if (rule.ending().empty() || reflection.HasField(options, type.field(i))) continue;
    const std::array<std::string_view, 1> endings = {rule.ending()};
    if (has_ending(path, endings)) reflection.SetString(&options, type.field(i), rule.value());
  }
}

struct NamedSource {
  v1::DatasetSource::Role role;
  std::string path;
  bool on_server = false;  // the path is on the server
};

/// The sources that `file` has, in the order of the roles.
std::vector<NamedSource> sources_of(const v1::DatasetFile& file) {
  std::vector<NamedSource> all;
  for (const bool on_server : {false, true}) {
    const auto* roles = v1::DatasetSource::Role_descriptor();
    for (int i = 1; i < roles->value_count(); ++i) {  // 0 is "unspecified"
      const auto role = static_cast<v1::DatasetSource::Role>(roles->value(i)->number());
      std::string path = text_at(file, (on_server ? "server_" : "") + file_field(role));
      if (!path.empty()) all.push_back({role, std::move(path), on_server});
    }
  }
  return all;
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
    ASSIGN_OR_RETURN(dataset, client.get_dataset(dataset.name()));
  }
  if (dataset.state() == v1::Dataset::FAILED) {
    return make_error(ErrorCode::kInvalidArgument,
                      dataset.reason().empty() ? "DATASET_INVALID" : dataset.reason(),
                      dataset.message());
  }
  return dataset;
}

}  // namespace

v1::DatasetSpec dataset_spec(const v1::DatasetFile& file) {
  v1::DatasetSpec spec;
  for (const NamedSource& source : sources_of(file)) {
    v1::DatasetSource& added = *spec.add_sources();
    added.set_role(source.role);
    added.set_filename(shown_name(source.path));
    if (source.on_server) added.set_server_path(source.path);
  }
  const DatasetFormat& format = format_of(file);
  google::protobuf::Message* options = spec.GetReflection()->MutableMessage(&spec, format.field);
  if (format.is_given(file)) {
    const auto* given = file.GetDescriptor()->FindFieldByName(format.name());
    options->CopyFrom(file.GetReflection()->GetMessage(file, given));
  }
  fill_by_ending(file.path().empty() ? file.server_path() : file.path(), *options);
  return spec;
}

std::vector<std::filesystem::path> dataset_paths(const v1::DatasetFile& file,
                                                 const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const NamedSource& source : sources_of(file)) {
    paths.push_back(source.on_server ? std::filesystem::path() : folder / source.path);
  }
  return paths;
}

bool is_data_folder(const v1::DatasetFile& file, const std::filesystem::path& path) {
  std::error_code failed;
  return format_of(file).about.folder() && std::filesystem::is_directory(path, failed);
}

Result<v1::Dataset> ensure_dataset(Client& client, const v1::DatasetFile& file,
                                   const std::filesystem::path& folder,
                                   const DatasetObserver& observer, std::stop_token stop) {
  v1::CreateDatasetRequest request;
  request.set_parent(client.parent());
  request.set_dataset_id(file.name());
  *request.mutable_spec() = dataset_spec(file);
  const std::vector<std::filesystem::path> paths = dataset_paths(file, folder);
  if (std::ranges::any_of(paths, [](const auto& path) { return !path.empty(); })) {
    // Files may travel for minutes: not to a server that refuses the name or an option.
    request.set_validate_only(true);
    if (const Result<v1::Dataset> checked = client.create_dataset(request); !checked.ok()) {
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
  ASSIGN_OR_RETURN(v1::Dataset dataset, client.create_dataset(request));
  if (dataset.state() == v1::Dataset::INGESTING && observer.ingesting) observer.ingesting(dataset);
  return wait_until_ready(client, std::move(dataset), stop);
}

}  // namespace trainyard::client
