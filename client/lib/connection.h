// client/lib/connection.h: which server to talk to, and with which credentials.
//
// The order of precedence is: flag, environment, configuration file, and last the sockets where a
// daemon of this user or of this machine listens. Secrets are only ever read from files.
//
// The configuration file is $TRAINYARD_CONFIG, else $XDG_CONFIG_HOME/trainyard/config.yaml, else
// /etc/trainyard/client.yaml. `context` is the default of --context and TRAINYARD_CONTEXT:
//
//   context: lab
//   contexts:
//     lab: {server: "gpu1.example:7443", ca_file: ca.pem, token_file: token}
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard::client {

struct Connection {
  std::string server;           // "unix:/path" or "host:port"
  std::string ca_file;          // PEM file of root certificates for TLS
  std::string token_file;       // file of the bearer token; only its owner may have access
  bool plaintext = false;       // allows TCP without TLS to an address other than loopback
  bool is_default = false;      // no setting names the server
  int64_t timeout_ms = 10'000;  // for each unary call

  bool is_unix() const { return server.starts_with("unix:"); }
};

/// The values of command-line flags; empty or 0 means not given.
struct ConnectionFlags {
  std::string server, context, ca_file, token_file, config_file;
  bool plaintext = false;
  double timeout_s = 0;
};

/// Returns an environment variable, or "" if it is not set. Tests pass their own function.
using Environment = std::function<std::string(const char*)>;

Result<Connection> resolve_connection(const ConnectionFlags& flags, const Environment& env);

/// Returns the paths on which a daemon may listen by default, the most specific first.
std::vector<std::filesystem::path> default_sockets(const Environment& env);

/// Reads the token without its line end. Refuses a file that other users can read.
Result<std::string> read_token(const std::filesystem::path& path);

/// Checks immediately whether a server listens on a Unix socket, because gRPC's own error message
/// does not help. Does nothing for TCP.
Status probe_server(const Connection& connection);

}  // namespace trainyard::client
