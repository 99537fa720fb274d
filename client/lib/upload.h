// client/lib/upload.h: uploads one file by its content, resuming where an earlier attempt stopped.
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
  int64_t sent_bytes = 0;  // committed before, plus sent now
  int64_t total_bytes = 0;
};
using UploadObserver = std::function<void(const UploadProgress&)>;

/// Digests the file, asks what the server has, and sends the rest in chunks with CRC-32C. A stream
/// that breaks is resumed at the committed size, up to kUploadTriesMax times without any progress.
/// A file whose content the server has is not sent at all. Returns the SHA-256.
///
/// A large file of a size that the server has no file of is new to it: that is sent at once, under
/// a name made up of what the file looks like, and digested meanwhile.
inline constexpr int kUploadTriesMax = 5;
inline constexpr int64_t kUploadChunkBytes = 1 << 20;
inline constexpr int64_t kUploadAtOnceBytes = 4 << 20;  // a smaller file is digested in no time
Result<std::string> upload_file(Client& client, const std::filesystem::path& path,
                                const UploadObserver& observer, std::stop_token stop);

/// The same for a folder, as the tar of src/base/tar_folder.h: the same files, the same digest.
Result<std::string> upload_folder(Client& client, const std::filesystem::path& path,
                                  const UploadObserver& observer, std::stop_token stop);

}  // namespace trainyard::client
