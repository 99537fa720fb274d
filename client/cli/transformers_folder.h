// client/cli/transformers_folder.h: shared by `model export` and `local export` with --format
// transformers.
#pragma once

#include <filesystem>
#include <string>

#include "client/cli/session.h"

namespace trainyard::cli {

/// Returns check_export_folder(), with errors that mention --out.
Status check_transformers_target(const std::string& folder, bool overwrite);

/// Writes `folder` from the folder of a trained model and prints its name.
Result<int> write_transformers_folder(Session& session, const std::filesystem::path& model,
                                      const std::string& folder, bool overwrite);

}  // namespace trainyard::cli
