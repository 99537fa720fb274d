// client/lib/model_export.h: downloads a trained model from the server into a folder.
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

/// Downloads each file under a temporary name, checks size and SHA-256, then renames it. File names
/// from the server may not contain paths. On an error, complete files stay and the partial file is
/// removed.
Result<std::vector<ExportedFile>> export_model(Client& client, const std::string& name,
                                               const std::filesystem::path& folder,
                                               std::stop_token stop);

/// Returns {"folder": ..., "files": [{filename, size_bytes, sha256}]} as JSON.
std::string export_json(const std::string& folder, const std::vector<ExportedFile>& files);

}  // namespace trainyard::client
