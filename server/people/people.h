// server/people/people.h: the roles of all people, and their tokens, in memory.
//
// The store is the truth; this class holds a copy that it replaces as a whole after each change, so
// that a call reads it without the store and without waiting. A revoked token or role has effect
// before the call that revoked it is answered. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/people/principal.h"
#include "src/base/clock.h"
#include "src/base/result.h"

namespace trainyard::server {

class Store;

class People {
 public:
  /// `socket_role` is the role in the project "default" of users of the host whom the store gives
  /// no role there.
  People(Store& store, const Clock& clock, ProjectRole socket_role);
  ~People();
  /// Reads the store again. Called after each change of people, members, tokens, projects, shares.
  Status reload();

  /// Returns whose token this is. UNAUTHENTICATED / CREDENTIALS_INVALID, CREDENTIALS_EXPIRED,
  /// CREDENTIALS_REVOKED. `acting_for` is the metadata trainyard-acting-for, or empty:
  /// PERMISSION_DENIED / ACTING_FOR_DENIED.
  Result<Principal> find_by_token(std::string_view text, std::string_view acting_for) const;
  /// Returns whether the principal's token is still valid, for long streams.
  bool is_valid(const Principal& principal) const;

  ServerRole server_role(const Principal& principal) const;
  /// Returns the person's role in the project: kMaintainer for admins, kNone for a project that does
  /// not exist.
  ProjectRole role(const Principal& principal, std::string_view project) const;
  /// Returns the projects in which the person is at least a viewer, sorted.
  std::vector<std::string> projects(const Principal& principal) const;
  /// Returns whether `project` shares the dataset or model with a project in which the person is at
  /// least a viewer. `collection` is "datasets" or "models".
  bool is_shared_with(const Principal& principal, std::string_view project,
                      std::string_view collection, std::string_view id) const;
  /// Returns whether `project` shares the dataset or model with `with_project`.
  bool is_shared(std::string_view project, std::string_view collection, std::string_view id,
                 std::string_view with_project) const;
  /// Returns the devices that the project's jobs may use; empty: all.
  std::vector<std::string> devices(std::string_view project) const;

 private:
  struct View;
  Store& store_;
  const Clock& clock_;
  const ProjectRole socket_role_;
  std::shared_ptr<const View> view() const;
  mutable std::shared_ptr<const View> view_;  // read and replaced atomically
};

}  // namespace trainyard::server
