// server/files/uploads.h: files uploaded by content. A part is stored at
// uploads/{sha256}.{size}.{project}.part until it is complete and its digest matches; then it is
// renamed to uploads/{sha256}. The server never opens a path that a client sent. A client that
// computes the digest only while it sends uses other digits to name the part, which finish() then
// replaces.
//
// A project has only what it has sent itself: an upload is reported complete after its bytes were
// sent in the same project and matched their digest, whatever other projects have sent. The
// complete file is shared by all projects and deleted when none needs it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/paths.h"
#include "server/files/disk_watch.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/following_digest.h"
#include "src/base/handle.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard::server {

class Uploads;

/// A stream that uploads bytes. Not thread-safe. Destroying it without finish() pauses the upload.
class UploadWriter {
 public:
  ~UploadWriter();
  /// Chunks must be consecutive. OUT_OF_RANGE/UPLOAD_OFFSET_MISMATCH;
  /// DATA_LOSS/CHUNK_CHECKSUM_MISMATCH (send it again); INVALID_ARGUMENT for a chunk that is empty
  /// or too large; RESOURCE_EXHAUSTED/UPLOAD_TOO_LARGE, STORAGE_FULL, DISK_LOW.
  Status append(int64_t offset, std::string_view data, uint32_t crc);
  /// Checks length and digest, and renames the file to `sha256`, or if that is empty to the digest
  /// with which it was opened. INVALID_ARGUMENT/CONTENT_HASH_MISMATCH: the part was deleted.
  /// OUT_OF_RANGE/UPLOAD_OFFSET_MISMATCH if bytes are missing; ABORTED/UPLOAD_BUSY.
  Result<Upload> finish(const std::string& sha256 = "");
  /// Makes the received bytes durable and returns their number.
  Result<Upload> pause();

 private:
  friend class Uploads;
  UploadWriter(Uploads& uploads, Upload row, UniqueFd file, bool threaded,
               FollowingDigest::State hashed);
  Status commit();
  Result<Upload> name_file(const std::string& sha256);

  Uploads& uploads_;
  Upload row_;
  UniqueFd file_;
  int64_t offset_ = 0;     // offset of the next byte
  int64_t committed_ = 0;  // the size in the row
  int64_t flushing_ = 0;   // writing to disk was started for the bytes before this offset
  bool hashed_ = false;    // the digest has been computed
  FollowingDigest digest_;
};

/// Thread-safe.
class Uploads {
 public:
  static constexpr int64_t kChunkBytesMax = 1 << 20;
  // At most this much is sent again after a power loss.
  static constexpr int64_t kCommitBytes = 64 << 20;
  static constexpr int64_t kFlushBytes = 8 << 20;  // write-back is started after this many bytes
  static constexpr size_t kHashThreadsMax = 16;    // further streams hash in finish()
  static constexpr size_t kHashesMax = 64;         // kept hash states of paused uploads
  static constexpr int64_t kIdleUsMax = int64_t{3600} * 1'000'000;

  /// `disk` may be null, then there is always room.
  Uploads(Store& store, Files& files, const Clock& clock, StatePaths paths, int64_t bytes_max,
          DiskWatch* disk = nullptr);

  /// Opens the part for a writer at `offset`. INVALID_ARGUMENT; RESOURCE_EXHAUSTED/
  /// UPLOAD_TOO_LARGE, DISK_LOW; OUT_OF_RANGE/UPLOAD_OFFSET_MISMATCH with the committed size;
  /// ABORTED/UPLOAD_BUSY. Null for a file that is already complete: nothing needs to be sent.
  Result<std::unique_ptr<UploadWriter>> open(const UploadKey& key, int64_t offset);
  /// Returns the project's complete file, else its part of that size. For size 0 returns the part
  /// with the most bytes.
  Result<Upload> find(const UploadKey& key) const;
  /// Deletes parts that have received nothing for an hour, and calls collect() once an hour.
  void expire();
  /// Deletes files that were complete an hour ago and that no dataset and no model refers to.
  void collect();
  /// Returns the uploads whose files collect() and expire() would delete at that time, one for each
  /// file.
  Result<std::vector<Upload>> list_unused(int64_t as_of_us) const;
  void remove_all_unused(int64_t as_of_us) {
    remove_idle(as_of_us);
    remove_complete(as_of_us);
  }
  /// Deletes a file that was a model of the project, unless something else refers to it or it is
  /// being uploaded.
  void discard(const std::string& project, const std::string& sha256) {
    remove_unused({{project, sha256, 0}});
  }

 private:
  friend class UploadWriter;
  /// What a caller may claim: a part, or a digest with all of its parts in all projects. Sorted by
  /// digest.
  struct Part {
    std::string sha256;
    int64_t size_bytes = 0;    // 0: the digest
    std::string project = {};  // empty: the digest
    auto operator<=>(const Part&) const = default;
  };
  static Part part_of(const UploadKey& key) { return {key.sha256, key.size_bytes, key.project}; }

  /// Claims the part; false if another caller has claimed it.
  bool claim(const Part& part);
  void release(const Part& part);
  void keep_hash(const Part& part, FollowingDigest::State hashed);
  /// Returns the stored hash state of a prefix of the part's first `committed` bytes, or the empty
  /// state.
  FollowingDigest::State take_hash(const Part& part, int64_t committed);
  bool may_start_thread();
  std::filesystem::path part_path(const UploadKey& key) const;
  /// Returns whether the file of an unfinished upload has at least the size in its row.
  bool holds_part(const Upload& row) const;
  void remove_idle(int64_t as_of_us);
  void remove_complete(int64_t as_of_us);
  void remove_unused(std::vector<UploadKey> keys);

  Store& store_;
  Files& files_;
  const Clock& clock_;
  const StatePaths paths_;
  const int64_t bytes_max_;
  DiskWatch* const disk_;
  Mutex mu_;
  std::set<Part> busy_ TRAINYARD_GUARDED_BY(mu_);  // parts with a writer
  // The hash states of paused uploads, so that their files need not be read again.
  std::map<Part, FollowingDigest::State> hashes_ TRAINYARD_GUARDED_BY(mu_);
  std::optional<int64_t> collected_us_ TRAINYARD_GUARDED_BY(mu_);  // time of the last collect()
};

}  // namespace trainyard::server
