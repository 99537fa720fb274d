// server/service/uploads.h: files that come in by content. A part lies at uploads/{sha256}.part
// until all of it is there and its digest is right; then it gets its name. The server never opens a
// path that a client gave.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "server/config/paths.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/handle.h"
#include "src/base/result.h"
#include "src/base/sha256.h"

namespace trainyard::server {

class Uploads;

/// One stream that brings bytes. Not thread-safe. Its end without finish() is a pause.
class UploadWriter {
 public:
  ~UploadWriter();
  /// Chunks follow without a gap. OUT_OF_RANGE/UPLOAD_OFFSET_MISMATCH; DATA_LOSS/CHUNK_CHECKSUM
  /// (send it again); INVALID_ARGUMENT for a chunk that is empty or too large;
  /// RESOURCE_EXHAUSTED/UPLOAD_TOO_LARGE, STORAGE_FULL.
  Status append(int64_t offset, std::string_view data, uint32_t crc);
  /// Checks length and digest and gives the file its name. INVALID_ARGUMENT/CONTENT_HASH_MISMATCH:
  /// the part is dropped. OUT_OF_RANGE/UPLOAD_OFFSET_MISMATCH if bytes are missing.
  Result<Upload> finish();
  /// Makes what came durable and tells how much that is.
  Result<Upload> pause();

 private:
  friend class Uploads;
  UploadWriter(Uploads& uploads, Upload row, UniqueFd file);
  Status commit();

  Uploads& uploads_;
  Upload row_;
  UniqueFd file_;
  int64_t offset_ = 0;     // of the next byte
  int64_t committed_ = 0;  // what the row says
  Sha256 hash_;            // of the whole file, while `hashing_`
  bool hashing_ = false;   // begun at offset 0; else the file is read again at the end
};

/// Thread-safe.
class Uploads {
 public:
  static constexpr int64_t kChunkBytesMax = 1 << 20;
  static constexpr int64_t kCommitBytes = 64 << 20;  // at most this is sent again after power loss
  static constexpr int64_t kIdleUsMax = int64_t{3600} * 1'000'000;

  Uploads(Store& store, Files& files, const Clock& clock, StatePaths paths, int64_t bytes_max);

  /// Opens the part for a writer at `offset`. INVALID_ARGUMENT; RESOURCE_EXHAUSTED/
  /// UPLOAD_TOO_LARGE; OUT_OF_RANGE/UPLOAD_OFFSET_MISMATCH with the committed size;
  /// ABORTED/UPLOAD_BUSY. Null for a file that is complete already: nothing needs to be sent.
  Result<std::unique_ptr<UploadWriter>> open(const std::string& sha256, int64_t size_bytes,
                                             int64_t offset);
  Result<Upload> find(const std::string& sha256) const;
  /// Removes parts that got no byte for an hour.
  void expire();
  /// Removes a file that was a model, unless another model is made of it or it is being brought.
  void discard(const std::string& sha256);

 private:
  friend class UploadWriter;
  void release(const std::string& sha256);

  Store& store_;
  Files& files_;
  const Clock& clock_;
  const StatePaths paths_;
  const int64_t bytes_max_;
  std::mutex mu_;
  std::set<std::string> busy_;  // GUARDED_BY(mu_): parts with a writer
};

}  // namespace trainyard::server
