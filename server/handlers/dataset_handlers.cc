#include "server/handlers/dataset_handlers.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "proto/convert/data.h"
#include "server/config/log.h"
#include "server/files/removals.h"
#include "server/planning/digest.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "src/base/text.h"

namespace trainyard::server {

v1::Upload to_proto(const Upload& upload) {
  v1::Upload out;
  out.set_name(full_name(upload.project, Collection::kUploads, upload.sha256));
  out.set_committed_size(upload.committed_size);
  out.set_complete(upload.complete);
  return out;
}

namespace {

constexpr int kSourcesMax = 16;
constexpr size_t kServerPathBytesMax = 4096;

Status check_sources(const v1::DatasetSpec& spec, bool files_follow) {
  if (spec.sources_size() < 1 || spec.sources_size() > kSourcesMax) {
    return field_error("FIELD_REQUIRED", "spec.sources",
                       std::to_string(spec.sources_size()) + " sources, expected 1..16");
  }
  for (int i = 0; i < spec.sources_size(); ++i) {
    const v1::DatasetSource& source = spec.sources(i);
    const std::string field = "spec.sources[" + std::to_string(i) + "]";
    if (!source.server_path().empty()) {
      if (!source.sha256().empty()) {
        return field_error("FIELD_CONFLICT", field,
                           "has sha256 and server_path, expected only one of them");
      }
      if (source.server_path().size() > kServerPathBytesMax) {
        return field_error("FIELD_OUT_OF_RANGE", field + ".server_path",
                           "has more than " + std::to_string(kServerPathBytesMax) + " bytes");
      }
      continue;
    }
    if (is_sha256_hex(source.sha256()) || (files_follow && source.sha256().empty())) continue;
    return field_error("NAME_MALFORMED", field + ".sha256",
                       quoted_value(source.sha256()) + " is not 64 lower-case hexadecimal digits");
  }
  return {};
}

bool on_server(const v1::DatasetSource& source) { return !source.server_path().empty(); }

Status check_request(const v1::CreateDatasetRequest& request) {
  if (const Result<std::string> project = parse_parent(request.parent()); !project.ok()) {
    return project.error();
  }
  if (!request.has_spec()) {
    return field_error("FIELD_REQUIRED", "spec", "is missing, expected sources and a format");
  }
  if (!request.dataset_id().empty()) {
    if (Status s = check_id(Collection::kDatasets, "dataset_id", request.dataset_id()); !s.ok()) {
      return s;
    }
  }
  if (Status s = check_sources(request.spec(), request.validate_only()); !s.ok()) return s;
  const std::vector<std::filesystem::path> paths(
      static_cast<size_t>(request.spec().sources_size()));  // placeholders: no file is read here
  const Result<IngestRequest> ingest = to_ingest_request(request.spec(), paths);
  return ingest.ok() ? Status() : Status(ingest.error());
}

Result<v1::Upload> get_upload(const DatasetParts& parts, const v1::GetUploadRequest& request) {
  ASSIGN_OR_RETURN(const ResourceName name,
                   parse_name(Collection::kUploads, "name", request.name()));
  if (request.size_bytes() < 0) {
    return field_error(
        "FIELD_OUT_OF_RANGE", "size_bytes",
        std::to_string(request.size_bytes()) + " is out of range, expected at least 0");
  }
  ASSIGN_OR_RETURN(const Upload upload,
                   parts.uploads.find({name.project, name.id, request.size_bytes()}));
  v1::Upload out = to_proto(upload);
  if (request.size_bytes() > 0) {
    ASSIGN_OR_RETURN(const bool seen,
                     parts.store.uploads().has_size(name.project, request.size_bytes()));
    out.set_size_is_new(!seen);
  }
  return out;
}

/// Creates a dataset. Each source in `request` must have its digest. `stamps`:
/// v1::IngestTask.stamps.
Result<v1::Dataset> create_known_dataset(const DatasetParts& parts,
                                         const v1::CreateDatasetRequest& request,
                                         const Principal& caller,
                                         const std::vector<std::string>& stamps) {
  ASSIGN_OR_RETURN(const std::string project, parse_parent(request.parent()));
  const v1::DatasetSpec& spec = request.spec();
  v1::DatasetSpec content = spec;  // names and paths are not part of a dataset's identity
  for (v1::DatasetSource& source : *content.mutable_sources()) {
    source.clear_filename();
    source.clear_server_path();
  }
  NewDataset dataset;
  dataset.project = project;
  dataset.owner = caller.person;
  dataset.may_change_others = parts.people.role(caller, project) >= ProjectRole::kMaintainer;
  dataset.digest = digest_of(content);
  dataset.id = request.dataset_id().empty() ? "d-" + dataset.digest.substr(0, kDefaultIdDigits)
                                            : request.dataset_id();
  dataset.spec = spec;
  // A READY dataset no longer needs its sources. It must be one of this project: another one proves
  // only that another project has the bytes.
  ASSIGN_OR_RETURN(const bool ready, parts.store.datasets().has_ready(project, dataset.digest));
  if (!ready) {
    if (Status s = parts.disk.check(); !s.ok()) return s.error();
  }
  for (int i = 0; !ready && i < spec.sources_size(); ++i) {
    if (on_server(spec.sources(i))) continue;
    ASSIGN_OR_RETURN(const Upload upload, parts.uploads.find({project, spec.sources(i).sha256()}));
    if (upload.complete) continue;
    Error e =
        make_error(ErrorCode::kFailedPrecondition, "UPLOAD_INCOMPLETE",
                   "spec.sources[" + std::to_string(i) + "]: the file " +
                       spec.sources(i).sha256().substr(0, 12) + "... was not uploaded completely");
    e.metadata = {{"upload", full_name(project, Collection::kUploads, spec.sources(i).sha256())},
                  {"committed_size", std::to_string(upload.committed_size)}};
    return e;
  }
  ASSIGN_OR_RETURN(const CreatedDataset created, parts.store.datasets().create(std::move(dataset)));
  if (created.start_ingest) {
    spdlog::info("event=ingest_queued {} digest={} {}", kv("dataset", created.dataset.name()),
                 created.dataset.digest, kv("caller", caller.text()));
    parts.ingest.enqueue(created.dataset, caller.person, stamps);
  }
  return to_proto(created.dataset);
}

/// Replies later if the server's own files must be read first.
void create_dataset(const DatasetParts& parts, const v1::CreateDatasetRequest& request,
                    const CallInfo& call, Done<v1::Dataset> done) {
  if (parts.draining) return done(draining_error());
  if (Status s = check_request(request); !s.ok()) return done(s.error());
  if (request.validate_only()) return done(v1::Dataset());
  if (std::ranges::none_of(request.spec().sources(), on_server)) {
    return done(create_known_dataset(parts, request, call.principal, {}));
  }
  // Whether the dataset exists depends on the files' content, so a worker reads them first. Its
  // result arrives on a thread that must not wait for the store.
  const auto create = [&parts, request, caller = call.principal,
                       done = std::move(done)](Result<std::vector<SourceContent>> contents) {
    if (!contents.ok()) return done(std::move(contents).error());
    v1::CreateDatasetRequest known = request;
    std::vector<std::string> stamps;
    for (size_t i = 0; i < contents->size(); ++i) {
      v1::DatasetSource& source = *known.mutable_spec()->mutable_sources(static_cast<int>(i));
      if (on_server(source)) source.set_sha256((*contents)[i].sha256);
      stamps.push_back((*contents)[i].stamp);
    }
    const auto create_it = [&parts, known = std::move(known), caller, stamps = std::move(stamps),
                            done] { done(create_known_dataset(parts, known, caller, stamps)); };
    if (!parts.executor.post(create_it)) done(draining_error());
  };
  parts.one_shot_tasks.digest(request.spec(), create);
}

Result<v1::Dataset> get_dataset(const DatasetParts& parts, const v1::GetDatasetRequest& request) {
  ASSIGN_OR_RETURN(const DatasetName name, parse_dataset_name("name", request.name()));
  ASSIGN_OR_RETURN(const Dataset dataset, parts.store.datasets().find(name.project, name.ref));
  if (dataset.state == v1::Dataset::INGESTING) parts.ingest.asked(dataset.digest);
  return to_proto(dataset);
}

Result<v1::ListDatasetsResponse> list_datasets(const DatasetParts& parts,
                                               const v1::ListDatasetsRequest& request) {
  ASSIGN_OR_RETURN(const std::string project, parse_parent(request.parent()));
  ASSIGN_OR_RETURN(const DatasetPage page,
                   parts.store.datasets().list(project, request.all_versions(), request.page_size(),
                                               request.page_token()));
  v1::ListDatasetsResponse response;
  for (const Dataset& dataset : page.datasets) *response.add_datasets() = to_proto(dataset);
  response.set_next_page_token(page.next_page_token);
  return response;
}

Status delete_dataset(const DatasetParts& parts, const v1::DeleteDatasetRequest& request,
                      const CallInfo& call) {
  ASSIGN_OR_RETURN(const DatasetName name, parse_dataset_name("name", request.name()));
  ASSIGN_OR_RETURN(const DatasetStore::Removed removed,
                   parts.store.datasets().remove(name.project, name.ref));
  for (const std::string& digest : removed.unused_digests) {
    if (Status s = remove_noted(parts.store, parts.files, parts.paths, "datasets/" + digest);
        !s.ok()) {
      spdlog::warn("event=files_not_deleted digest={} {}", digest,
                   kv("message", s.error().message));
    }
  }
  for (const Dataset& dataset : removed.datasets) {
    if (dataset.state == v1::Dataset::INGESTING) parts.ingest.cancel(dataset.digest);
    spdlog::info("event=dataset_deleted {} {}", kv("dataset", dataset.name()),
                 kv("caller", call.principal.text()));
  }
  parts.uploads.collect();
  // The store has ended its shares.
  if (parts.people.has_shares(name.project, "datasets", name.ref.id)) {
    (void)parts.people.reload();
  }
  return {};
}

}  // namespace

void add_dataset_rows(Methods& rows, const DatasetParts& parts) {
  rows.add("GetUpload", parts, &get_upload);
  rows.add("CreateDataset", parts, &create_dataset);
  rows.add("GetDataset", parts, &get_dataset);
  rows.add("ListDatasets", parts, &list_datasets);
  rows.add("DeleteDataset", parts, &delete_dataset);
}

}  // namespace trainyard::server
