// server/store/owner_store.h: reads and changes who owns jobs, arrays, datasets and models.
// Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

class Connection;
class StoreCore;
struct WriteContext;

class OwnerStore {
 public:
  explicit OwnerStore(StoreCore& core) : core_(core) {}

  /// Returns the owner of a resource; nothing if there is no such resource. `collection` is "jobs",
  /// "arrays", "datasets" or "models". A dataset's `id` may end in a version; without one all
  /// versions count. The owner is '' if it is unknown, or if several people own the versions.
  Result<std::optional<std::string>> find(std::string_view project, std::string_view collection,
                                          std::string_view id) const;

 private:
  StoreCore& core_;
};

// The following functions run on a connection inside a transaction and throw SqliteError.

/// Gives all jobs, arrays, datasets and models of one person to another one.
void give_owned(WriteContext& context, const std::string& from, const std::string& to);
/// What a person owns.
struct Owned {
  int64_t jobs = 0;  // unfinished
  int64_t datasets = 0;
  int64_t models = 0;
  int64_t all() const { return jobs + datasets + models; }
};
Owned owned_by(Connection& db, std::string_view person);

}  // namespace trainyard::server
