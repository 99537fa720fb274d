#include "client/cli/upload_view.h"

#include <optional>

#include "client/cli/relative_name.h"
#include "client/cli/transfer_line.h"
#include "client/lib/names.h"
#include "client/lib/weights_upload.h"

namespace trainyard::cli {
namespace {

/// Returns no observer if the line would not be visible.
client::UploadObserver upload_observer(TransferLine& line) {
  if (!line.is_seen()) return {};
  return [&line](const client::UploadProgress& p) {
    line.show("uploading " + safe_text(p.filename), p.sent_bytes, p.total_bytes);
  };
}

/// Returns nothing if there is no dataset with that ID yet.
std::optional<v1::Dataset> find_newest(client::Client& server, const std::string& id) {
  if (id.empty()) return std::nullopt;
  Result<v1::Dataset> newest =
      server.call(client::rpc::kGetDataset, server.parent() + "/datasets/" + id);
  if (!newest.ok()) return std::nullopt;  // if it was another error, the upload will report it
  return std::move(newest).value();
}

}  // namespace

Result<v1::Dataset> ensure_dataset_shown(Session& session, const v1::DatasetFile& file,
                                         const std::filesystem::path& folder, bool say_what_is) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::optional<v1::Dataset> before = find_newest(*server, file.name());
  const auto ensure = [&] {
    TransferLine line(session.err());
    client::DatasetObserver observer;
    observer.uploading = upload_observer(line);
    observer.ingesting = [&](const v1::Dataset& dataset) {
      line.write("reading dataset " + safe_text(relative_name(dataset.name())) + " ...");
    };
    return client::ensure_dataset(*server, file, folder, observer, session.interrupted());
  };
  ASSIGN_OR_RETURN(v1::Dataset dataset, ensure());
  const std::string name = safe_text(relative_name(dataset.name()));
  if (before && before->version() != dataset.version()) {
    session.err().line(name + ": a new version; " + safe_text(relative_name(before->name())) +
                       " is kept");
  } else if (before && say_what_is) {
    session.err().line(name + ": the same content as before");
  }
  // The dataset's warnings are printed only here; for a job, its plan contains them.
  if (say_what_is) note_warnings(session, dataset.schema());
  return dataset;
}

void note_warnings(Session& session, const v1::DatasetSchema& schema) {
  if (schema.skipped_rows() > 0) {
    session.err().line("left out " + grouped(schema.skipped_rows()) +
                       (schema.skipped_rows() == 1 ? " row" : " rows") + " without a target");
  }
  for (const v1::DataWarning& warning : schema.warnings()) {
    session.err().line("warning: " + safe_text(warning.message()));
  }
}

Result<v1::Model> ensure_weights_shown(Session& session, const std::filesystem::path& path,
                                       const std::string& name) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  TransferLine line(session.err());
  return client::ensure_weights(*server, path, name, upload_observer(line), session.interrupted());
}

Result<v1::Model> import_model_shown(Session& session, const std::filesystem::path& weights,
                                     const std::filesystem::path& description,
                                     const std::string& name) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  TransferLine line(session.err());
  return client::import_model(*server, weights, description, name, upload_observer(line),
                              session.interrupted());
}

Result<v1::JobSpec> upload_files_shown(Session& session, const client::SpecFile& spec) {
  v1::JobSpec spec_to_submit = spec.job_spec();
  if (spec.has_data()) {
    ASSIGN_OR_RETURN(const v1::Dataset dataset,
                     ensure_dataset_shown(session, spec.file.dataset(), spec.folder));
    spec_to_submit.mutable_dataset()->set_name(dataset.name());
  }
  if (spec.has_weights()) {
    v1::InitialWeights& weights = *spec_to_submit.mutable_recipe()->mutable_initial_weights();
    ASSIGN_OR_RETURN(const v1::Model model, ensure_weights_shown(session, spec.weights_path(), ""));
    if (weights.title().empty()) weights.set_title(weights.path());
    weights.clear_path();
    weights.set_model(std::string(client::short_name(model.name())));
  }
  return spec_to_submit;
}

}  // namespace trainyard::cli
