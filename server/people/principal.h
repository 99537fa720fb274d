// server/people/principal.h: who makes a call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard::server {

/// A person's role in a project. The numbers are those of v1::ProjectRole and of the store.
enum class ProjectRole { kNone = 1, kViewer = 2, kMember = 3, kMaintainer = 4 };
/// A person's role on the server. The numbers are those of v1::ServerRole and of the store.
enum class ServerRole { kUser = 1, kOperator = 2, kAdmin = 3 };

const char* name_of(ProjectRole role);  // "viewer"
const char* name_of(ServerRole role);   // "operator"
/// Returns the role with this name; nothing for other texts.
std::optional<ProjectRole> project_role_named(std::string_view name);

/// The authenticated caller of a call. Only the daemon's credentials decide it (server/rpc/auth.h).
struct Principal {
  std::string person;    // whose rights count; owns what the call creates
  std::string service;   // the service whose token acts for `person`; empty: the person calls
  std::string token_id;  // empty without a token; "token_file:2" for a token of that file
  // How often the token had been rotated when its text was made, so that a stream which an old text
  // opened ends with it.
  int64_t token_rotation = 0;
  bool local = false;  // a user of this host, on the Unix socket without a token
  // An admin whatever the store says: root or the daemon's own user on the Unix socket, or the
  // bearer of a token without a name in token_file.
  bool owns_daemon = false;

  /// Returns the text for the audit: "alice", "alice (token t-12ab)", "alice by ci (token t-12ab)".
  std::string text() const;
};

}  // namespace trainyard::server
