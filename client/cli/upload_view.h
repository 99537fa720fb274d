// client/cli/upload_view.h: messages on stderr while files are uploaded.
#pragma once

#include "client/cli/session.h"
#include "client/lib/dataset_upload.h"
#include "client/lib/spec_file.h"

namespace trainyard::cli {

/// ensure_dataset() with a progress line. The answer is READY. Says so if it is a new version of an
/// existing dataset, and with `say_what_is` also if it is not, and what the dataset warns of.
Result<v1::Dataset> ensure_dataset_shown(Session& session, const v1::DatasetFile& file,
                                         const std::filesystem::path& folder,
                                         bool say_what_is = false);
/// What an ingest left out, and the dataset's warnings, on standard error.
void note_warnings(Session& session, const v1::DatasetSchema& schema);
/// ensure_weights() with a progress line.
Result<v1::Model> ensure_weights_shown(Session& session, const std::filesystem::path& path,
                                       const std::string& name);
/// The spec to send, once the server has the files that it names: its data and its initial weights.
Result<v1::JobSpec> bring_files_shown(Session& session, const client::SpecFile& spec);

}  // namespace trainyard::cli
