// client/cli/upload_view.h: what is told while a dataset is brought to the server. On stderr, where
// people read it.
#pragma once

#include "client/cli/session.h"
#include "client/lib/dataset_upload.h"

namespace trainyard::cli {

/// ensure_dataset() with a progress line. The answer is READY.
Result<v1::Dataset> ensure_dataset_shown(Session& session, const v1::DatasetFile& file,
                                         const std::filesystem::path& folder);

}  // namespace trainyard::cli
