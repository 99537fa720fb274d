// src/data/dataset_folder.h: definitions that the writer and the reader of a dataset's folder
// share.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard {

inline constexpr int64_t kDatasetFormat = 1;

/// Returns the content of the file `digest`, which `sha256sum -c digest` can check.
inline std::string digest_text(const std::string& schema_sha256, const std::string& data_sha256) {
  return schema_sha256 + "  schema.json\n" + data_sha256 + "  data.safetensors\n";
}

}  // namespace trainyard
