// server/store/removals.h: folders whose rows were deleted and whose files may still be there.
//
// A deletion removes the row first, so that nothing refers to files that are half gone. The note is
// written in the same transaction, and forgotten once the files are gone: what the daemon's end
// cut off is finished by its next start. Files that come before their row are noted before they are
// written, and the row's transaction forgets the note.
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
/// For the transaction that inserts the row.
void forget_removal(Connection& db, std::string_view path);

class RemovalStore {
 public:
  explicit RemovalStore(StoreCore& core) : core_(core) {}
  /// Paths that were noted and not forgotten, and whose jobs and datasets have no row.
  Result<std::vector<std::string>> list() const;
  /// Before files are written whose row comes later.
  Status note(const std::string& path);
  /// The files are gone.
  Status forget(const std::string& path);
  Status forget_all(std::vector<std::string> paths);

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
