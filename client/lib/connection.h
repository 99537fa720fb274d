// client/lib/connection.h: which server to talk to, with which credentials and in which project.
//
// Each value comes from the first of these that has it: option, environment, context
// (client/lib/contexts.h), default. A context that the option --context names goes before the
// environment. A context's values belong to its server: if another source names another server,
// none of them is used, so that no token goes to a server for which it is not meant.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::client {

struct Context;  // client/lib/contexts.h

/// The source of a value that nothing sets.
inline constexpr std::string_view kFromDefault = "default";
inline constexpr std::string_view kDefaultProject = "default";

struct Connection {
  std::string server;      // "unix:/path" or "host:port"
  std::string ca_file;     // PEM file of root certificates for TLS
  std::string token_file;  // file of the bearer token; only its owner may have access
  std::string token;       // the bearer token itself, from the environment; then no file is read
  std::string project{kDefaultProject};  // the ID of the project that names without one mean
  std::string context;                   // the context whose values may have been used; empty: none
  bool plaintext = false;                // allows TCP without TLS to an address other than loopback
  bool is_default = false;               // no setting names the server
  int64_t timeout_ms = 10'000;           // for each unary call

  /// Where each value came from: "--server", "TRAINYARD_SERVER", "context lab", "default"; empty
  /// for a value that is not set.
  struct Sources {
    std::string server, ca_file, token, project;
  };
  Sources from;

  bool is_unix() const { return server.starts_with("unix:"); }
  bool has_token() const { return !token.empty() || !token_file.empty(); }
  /// Returns the parent of the project's resources, "projects/default".
  std::string parent() const { return "projects/" + project; }
};

/// The values of command-line flags; empty or 0 means not given.
struct ConnectionFlags {
  std::string server = {}, context = {}, project = {};
  std::string ca_file = {}, token_file = {}, config_file = {};
  bool plaintext = false;
  double timeout_s = 0;
};

/// Returns an environment variable, or "" if it is not set. Tests pass their own function.
using Environment = std::function<std::string(const char*)>;

/// Combines all sources. CONFIG_INVALID names the setting that is wrong.
Result<Connection> resolve_connection(const ConnectionFlags& flags, const Environment& env);
/// Combines options, environment and this context; nullptr: none. `flags.context` only says whether
/// the context goes before the environment.
Result<Connection> resolve_in_context(const Context* context, const ConnectionFlags& flags,
                                      const Environment& env);

/// Returns the paths on which a daemon may listen by default, the most specific first.
std::vector<std::filesystem::path> default_sockets(const Environment& env);

/// Refuses texts that cannot be a token: empty ones, and those with spaces or unprintable
/// characters. `what` names the text in the message.
Status check_token(std::string_view token, const std::string& what);
/// Reads the token without its line end. Refuses a file that other users can read.
Result<std::string> read_token(const std::filesystem::path& path);

/// Checks immediately whether a server listens on a Unix socket, because gRPC's own error message
/// does not help. Does nothing for TCP.
Status probe_server(const Connection& connection);

}  // namespace trainyard::client
