// server/store/removals.h: folders whose rows were deleted and whose files may still be there.
//
// A deletion removes the row first, so that nothing refers to files that are half gone. The note is
// written in the same transaction, and forgotten once the files are gone: what the daemon's end
// cut off is finished by its next start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/store/done.h"

namespace trainyard::server {

class Connection;
class StoreCore;

/// For the transaction that deletes the row. `path` is relative to the state folder: "jobs/UID".
void note_removal(Connection& db, std::string_view path);

class RemovalStore {
 public:
  explicit RemovalStore(StoreCore& core) : core_(core) {}
  /// Paths that were noted and not forgotten, without datasets that were created again since.
  Result<std::vector<std::string>> list() const;
  /// The files are gone.
  Status forget(const std::string& path);

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
