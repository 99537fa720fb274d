// server/store/upload_store.h: stores how much of each uploaded file is durable. The bytes
// themselves are in files. A row's committed size is written after the bytes were synced, so it is
// never too large. Rows belong to a project; several projects may have complete uploads of the same
// content, of which there is one file. Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

/// A file's content and the size that was declared with it. The size is part of the key, so that a
/// client that declares a wrong size for some content does not block other clients.
struct UploadKey {
  std::string project;
  std::string sha256;
  int64_t size_bytes = 0;
};

struct Upload {
  std::string project;
  std::string sha256;
  int64_t size_bytes = 0;  // declared
  int64_t committed_size = 0;
  bool complete = false;
  int64_t active_time_us = 0;  // when the last byte arrived
  UploadKey key() const { return {project, sha256, size_bytes}; }
};

struct UnusedUploads {
  std::vector<Upload> uploads;
  // The digests among them that no other complete upload has: without these uploads, nothing needs
  // their files.
  std::set<std::string> files;
};

class UploadStore {
 public:
  explicit UploadStore(StoreCore& core) : core_(core) {}

  /// Creates the upload's row or returns the existing one.
  Result<Upload> begin(const UploadKey& key);
  /// Raises the committed size to `committed_size`; a smaller value changes nothing. Error:
  /// UPLOAD_NOT_FOUND.
  Result<Upload> advance(const UploadKey& key, int64_t committed_size);
  /// Marks the upload as complete. The caller has verified its digest.
  Result<Upload> complete(const UploadKey& key);
  /// Removes the row; the caller removes the file. A missing row is not an error.
  Status remove(const UploadKey& key);
  /// Removes the rows of those complete uploads among `keys` to which no model and no dataset of
  /// their project refers. Returns the digests of the files that no project has any more; the
  /// caller deletes them.
  Result<std::vector<std::string>> remove_unused(const std::vector<UploadKey>& keys);

  /// Returns the complete upload of this content, if there is one. Otherwise returns the incomplete
  /// upload with the declared size, or, for size 0, the one with the most committed bytes. An
  /// unknown file is no error: the result then has committed_size 0.
  Result<Upload> find(const std::string& project, const std::string& sha256,
                      int64_t size_bytes = 0) const;
  /// Returns whether a complete upload has this size.
  Result<bool> has_size(const std::string& project, int64_t size_bytes) const;
  /// Returns the incomplete uploads that received no byte since `before_us`.
  Result<std::vector<Upload>> list_idle(int64_t before_us) const;
  /// Returns the complete uploads of all projects from before `before_us` to which no dataset and
  /// no model of their project refers.
  Result<UnusedUploads> list_unused(int64_t before_us) const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
