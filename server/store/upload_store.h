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

struct Upload {
  std::string tenant;
  std::string sha256;
  int64_t size_bytes = 0;  // declared
  int64_t committed_size = 0;
  bool complete = false;
  int64_t active_time_us = 0;  // of the last byte
};

class UploadStore {
 public:
  explicit UploadStore(StoreCore& core) : core_(core) {}

  /// Makes the row or answers with the one that is there. FAILED_PRECONDITION/UPLOAD_SIZE_CONFLICT
  /// if it was declared with another size.
  void begin(std::string tenant, std::string sha256, int64_t size_bytes, Done<Upload> done);
  Result<Upload> begin(const std::string& tenant, const std::string& sha256, int64_t size_bytes);
  /// The committed size grows to `committed_size`; it never goes back. UPLOAD_NOT_FOUND.
  void advance(std::string tenant, std::string sha256, int64_t committed_size, Done<Upload> done);
  Result<Upload> advance(const std::string& tenant, const std::string& sha256,
                         int64_t committed_size);
  /// All bytes are there and their digest is right.
  void complete(std::string tenant, std::string sha256, Done<Upload> done);
  Result<Upload> complete(const std::string& tenant, const std::string& sha256);
  /// Forgets it; its file is yours to remove. A row that is not there is no error.
  void remove(std::string tenant, std::string sha256, Done<void> done);
  Status remove(const std::string& tenant, const std::string& sha256);
  /// Forgets it if no model is made of it; tells whether it did, and its file is then yours to
  /// remove.
  void remove_unused(std::string tenant, std::string sha256, Done<bool> done);
  Result<bool> remove_unused(const std::string& tenant, const std::string& sha256);

  /// A file never seen has committed_size 0: that is no error.
  Result<Upload> find(const std::string& tenant, const std::string& sha256) const;
  /// Incomplete uploads without a byte since `before_us`.
  Result<std::vector<Upload>> list_idle(int64_t before_us) const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
