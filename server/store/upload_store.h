// server/store/upload_store.h: how much of each uploaded file is durable. The bytes are files; a
// row's committed size is written after they were synced, so it never promises too much.
// Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

/// A file's content and the size that was declared with it. Content has one right size, but who
/// declares a wrong one must not be in the way of others.
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
  int64_t active_time_us = 0;  // of the last byte
  UploadKey key() const { return {project, sha256, size_bytes}; }
};

class UploadStore {
 public:
  explicit UploadStore(StoreCore& core) : core_(core) {}

  /// Creates the row or returns the existing one.
  Result<Upload> begin(const UploadKey& key);
  /// The committed size grows to `committed_size`; it never goes back. UPLOAD_NOT_FOUND.
  Result<Upload> advance(const UploadKey& key, int64_t committed_size);
  /// Marks the upload as complete, with the right digest.
  Result<Upload> complete(const UploadKey& key);
  /// Removes the row; the caller removes the file. A missing row is not an error.
  Status remove(const UploadKey& key);
  /// Removes the rows of complete content that no model and no dataset refers to, and returns the
  /// digests of which it did; the caller removes their files.
  Result<std::vector<std::string>> remove_unused(const std::string& project,
                                                 const std::vector<std::string>& sha256s);

  /// The complete upload of this content; else what there is of the declared size, or, for size 0,
  /// of the size that has most. An unknown file has committed_size 0, which is not an error.
  Result<Upload> find(const std::string& project, const std::string& sha256,
                      int64_t size_bytes = 0) const;
  /// Whether a complete upload has this size.
  Result<bool> has_size(const std::string& project, int64_t size_bytes) const;
  /// Incomplete uploads without a byte since `before_us`.
  Result<std::vector<Upload>> list_idle(int64_t before_us) const;
  /// Digests of complete uploads from before `before_us` that nothing refers to.
  Result<std::vector<std::string>> list_unused(const std::string& project, int64_t before_us) const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
