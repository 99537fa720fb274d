// client/lib/upload.h: uploads a file, named by its digest, and resumes where an earlier attempt
// stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "client/lib/client.h"

namespace trainyard::client {

struct UploadProgress {
  std::string filename;
  int64_t sent_bytes = 0;  // committed by earlier streams, plus sent by this one
  int64_t total_bytes = 0;
};
using UploadObserver = std::function<void(const UploadProgress&)>;

/// Computes the file's digest, queries which part the server has, and sends the rest in chunks with
/// CRC-32C. A broken stream is resumed at the committed size, up to kUploadTriesMax times without
/// progress. If the server already has the content, nothing is sent. Returns the SHA-256.
///
/// If the server has no file of a large file's size, the content must be new. Then the file is sent
/// immediately under a placeholder name, while its digest is computed.
inline constexpr int kUploadTriesMax = 5;
inline constexpr int64_t kUploadChunkBytes = 1 << 20;
// smaller files are digested quickly, and before they are sent
inline constexpr int64_t kUploadAtOnceBytes = 4 << 20;
Result<std::string> upload_file(Client& client, const std::filesystem::path& path,
                                const UploadObserver& observer, std::stop_token stop);

/// Uploads a folder like upload_file(), as the tar file of src/base/tar_folder.h: equal files give
/// an equal digest.
Result<std::string> upload_folder(Client& client, const std::filesystem::path& path,
                                  const UploadObserver& observer, std::stop_token stop);

/// Uploads a safetensors file, or the files of an index (model.safetensors.index.json) as one file
/// (src/checkpoint/merged_weights.h). A file whose 16-bit tensors cannot be mapped where they are
/// is uploaded with its tensors in another order.
Result<std::string> upload_weights(Client& client, const std::filesystem::path& path,
                                   const UploadObserver& observer, std::stop_token stop);

}  // namespace trainyard::client
