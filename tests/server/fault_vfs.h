// tests/server/fault_vfs.h: an SQLite VFS over the default one. A test can make each write,
// truncation or sync fail, end the process there, or record it to simulate a power cut later.
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
  int64_t offset = 0;  // of a write: its offset; of a truncation: the new size
  std::string data;
};

class FaultVfs {
 public:
  explicit FaultVfs(std::string name);
  ~FaultVfs();  // call only after every connection that uses the layer is closed
  FaultVfs(const FaultVfs&) = delete;

  const std::string& name() const { return name_; }
  /// Sets the hook that is called under a lock before each operation. SQLITE_OK lets the operation
  /// happen; any other code becomes its result. The hook may also end the process.
  void set_hook(std::function<int(const FileOperation&)> hook);
  /// Called by the layer's functions before each operation.
  int before(FileOperation operation);

 private:
  const std::string name_;
  sqlite3_vfs vfs_{};
  Mutex mu_;
  std::function<int(const FileOperation&)> hook_ TRAINYARD_GUARDED_BY(mu_);
};

/// The content of files by name.
using FileImages = std::map<std::string, std::string>;

/// Returns the files that a disk may contain after a power cut that follows the first `count`
/// operations: everything that was synced, while `random` decides whether each unsynced write is
/// lost, complete or cut at a sector boundary.
FileImages after_power_cut(FileImages images, const std::vector<FileOperation>& operations,
                           size_t count, const std::function<uint32_t()>& random);

}  // namespace trainyard::server
