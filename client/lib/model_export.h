// client/lib/model_export.h: a trained model from the server into a folder.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "client/lib/client.h"

namespace trainyard::client {

struct ExportedFile {
  std::string filename;
  int64_t size_bytes = 0;
  std::string sha256;
};

/// Writes each file under a temporary name, checks size and SHA-256, then renames. Names that the
/// server sends are never taken as paths. On an error, files that were complete stay and the part
/// is removed.
Result<std::vector<ExportedFile>> export_model(Client& client, const std::string& name,
                                               const std::filesystem::path& folder,
                                               std::stop_token stop);

/// {"folder": ..., "files": [{filename, size_bytes, sha256}]}
std::string export_json(const std::string& folder, const std::vector<ExportedFile>& files);

}  // namespace trainyard::client
