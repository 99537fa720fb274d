// client/cli/upload_view.h: uploads files and prints messages on stderr.
#pragma once

#include "client/cli/session.h"
#include "client/lib/dataset_upload.h"
#include "client/lib/spec_file.h"

namespace trainyard::cli {

/// Calls ensure_dataset() with a progress line; the returned dataset is READY. Prints if it is a
/// new version of an existing dataset. With `say_what_is`, also prints if the content is unchanged,
/// and the dataset's warnings.
Result<v1::Dataset> ensure_dataset_shown(Session& session, const v1::DatasetFile& file,
                                         const std::filesystem::path& folder,
                                         bool say_what_is = false);
/// Prints the number of rows that the ingest skipped, and the dataset's warnings, on stderr.
void note_warnings(Session& session, const v1::DatasetSchema& schema);
/// Calls ensure_weights() with a progress line.
Result<v1::Model> ensure_weights_shown(Session& session, const std::filesystem::path& path,
                                       const std::string& name);
/// Uploads the data and initial weights that the spec names, and returns the spec to submit, which
/// refers to them.
Result<v1::JobSpec> upload_files_shown(Session& session, const client::SpecFile& spec);

/// Does the same as client::import_model() and shows the progress.
Result<v1::Model> import_model_shown(Session& session, const std::filesystem::path& weights,
                                     const std::filesystem::path& description,
                                     const std::string& name);

}  // namespace trainyard::cli
