// client/lib/connection.h: which server to talk to, and with which credentials.
//
// flag > environment > configuration file > the sockets where a daemon of this user or of this
// machine listens. Secrets are only ever read from files.
//
//   $TRAINYARD_CONFIG, else $XDG_CONFIG_HOME/trainyard/config.yaml, else
//   /etc/trainyard/client.yaml:
//     context: lab                      # the one in use, unless --context or TRAINYARD_CONTEXT
//     says else contexts:
//       lab: {server: "gpu1.example:7443", ca_file: ca.pem, token_file: token}
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
  std::string ca_file;          // PEM; TLS with these roots
  std::string token_file;       // bearer token, readable by its owner alone
  bool plaintext = false;       // TCP without TLS to an address that is not loopback
  int64_t timeout_ms = 10'000;  // for each unary call

  bool is_unix() const { return server.starts_with("unix:"); }
};

/// What flags said; empty means not given.
struct ConnectionFlags {
  std::string server, context, ca_file, token_file, config_file;
  bool plaintext = false;
  double timeout_s = 0;
};

/// Looks up an environment variable: "" if it is not set. Tests bring their own.
using Environment = std::function<std::string(const char*)>;

Result<Connection> resolve_connection(const ConnectionFlags& flags, const Environment& env);

/// Where a daemon may listen by default, most specific first.
std::vector<std::filesystem::path> default_sockets(const Environment& env);

/// The token, without its line end. Refuses a file that others can read.
Result<std::string> read_token(const std::filesystem::path& path);

/// For a Unix socket, finds out at once whether a server listens: gRPC's own reason does not help.
/// Does nothing for TCP.
Status probe_server(const Connection& connection);

}  // namespace trainyard::client
