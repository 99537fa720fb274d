// tests/server/fault_vfs.h: an SQLite file layer over the default one, on which a test can make
// each write, truncation or sync fail, end the process, or be remembered for a power cut later.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/base/mutex.h"

namespace trainyard::server {

struct FileOperation {
  enum class Kind { kWrite, kTruncate, kSync };
  Kind kind = Kind::kWrite;
  std::string file;    // name without directory: trainyard.db, trainyard.db-wal
  int64_t offset = 0;  // of a write; the new size of a truncation
  std::string data;
};

class FaultVfs {
 public:
  explicit FaultVfs(std::string name);
  ~FaultVfs();  // after every connection that uses it
  FaultVfs(const FaultVfs&) = delete;

  const std::string& name() const { return name_; }
  /// Asked before each operation, under a lock: SQLITE_OK lets it happen, another code is its
  /// result, and it may also end the process.
  void set_hook(std::function<int(const FileOperation&)> hook);
  /// For the layer's functions.
  int before(FileOperation operation);

 private:
  const std::string name_;
  sqlite3_vfs vfs_{};
  Mutex mu_;
  std::function<int(const FileOperation&)> hook_ TRAINYARD_GUARDED_BY(mu_);
};

/// Content of files by name.
using FileImages = std::map<std::string, std::string>;

/// What a disk may hold after a power cut behind the first `count` operations: everything that was
/// synced, and of the rest whatever `keep` says, each write whole or cut at a sector.
FileImages after_power_cut(FileImages images, const std::vector<FileOperation>& operations,
                           size_t count, const std::function<uint32_t()>& random);

}  // namespace trainyard::server
