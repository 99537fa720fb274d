// server/store/removals.h: keeps note of folders whose rows were deleted and whose files may still
// exist.
//
// A deletion removes the row first, so that nothing refers to partly deleted files. The same
// transaction writes a note, which is removed once the files are deleted. If the daemon ends in
// between, the next start finishes the deletion. Files that are created before their row are noted
// before they are written, and the transaction that inserts the row removes the note.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/store/done.h"

namespace trainyard::server {

class Connection;
class StoreCore;

/// Must be called in the transaction that deletes the row. `path` is relative to the state folder:
/// "jobs/UID".
void note_removal(Connection& db, std::string_view path);
/// Must be called in the transaction that inserts the row.
void forget_removal(Connection& db, std::string_view path);

class RemovalStore {
 public:
  explicit RemovalStore(StoreCore& core) : core_(core) {}
  /// Returns the noted paths whose job or dataset has no row.
  Result<std::vector<std::string>> list() const;
  /// Must be called before writing files whose row is inserted later.
  Status note(const std::string& path);
  /// Removes the note after the files were deleted.
  Status forget(const std::string& path);
  Status forget_all(std::vector<std::string> paths);

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
