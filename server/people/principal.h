// server/people/principal.h: who makes a call.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::server {

/// A person's role in a project. The numbers are those of v1::ProjectRole and of the store.
enum class ProjectRole { kNone = 1, kViewer = 2, kMember = 3, kMaintainer = 4 };
/// A person's role on the server. The numbers are those of v1::ServerRole and of the store.
enum class ServerRole { kUser = 1, kOperator = 2, kAdmin = 3 };

const char* name_of(ProjectRole role);  // "viewer"
const char* name_of(ServerRole role);   // "operator"

/// The authenticated caller of a call. Only the daemon's credentials decide it (server/rpc/auth.h).
struct Principal {
  std::string person;   // whose rights count; owns what the call creates
  std::string service;  // the service whose token acts for `person`; empty: the person calls
  std::string token_id; // empty on the Unix socket
  bool local = false;   // a user of this host, on the Unix socket
  bool owns_daemon = false;  // root or the daemon's own user, on the Unix socket: an admin

  /// Returns the text for the audit: "alice", "alice (token t-12ab)", "alice by ci (token t-12ab)".
  std::string text() const;
};

}  // namespace trainyard::server
