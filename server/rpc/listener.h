// server/rpc/listener.h: the gRPC servers: limits, sockets, TLS, health, reflection.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/rpc/acceptor.h"
#include "src/base/result.h"

namespace grpc {
class Server;
class ServerBuilder;
class ServerCredentials;
class Service;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace trainyard::server {

class People;

/// The maximum size of a message, in either direction.
inline constexpr int kMessageBytesMax = 4 << 20;

/// Limits of the public connections.
struct ConnectionRules {
  size_t transport_bytes_max = size_t{256} << 20;  // memory for all connections of a server
};

/// A running server. The destructor stops it and waits for its handlers.
class Listener {
 public:
  /// Opens the public API's Unix socket, with the group of socket_group if there is one, and, if
  /// configured, the front end's socket and the TCP port. Errors:
  /// FAILED_PRECONDITION/ADDRESS_IN_USE, LISTEN_FAILED; errors of reading the TLS files.
  static Result<std::unique_ptr<Listener>> open_public(const Config& config, const People& people,
                                                       const std::vector<grpc::Service*>& services,
                                                       const std::vector<std::string>& names,
                                                       const ConnectionRules& rules = {});
  /// Opens the Unix socket of the workers on this host.
  static Result<std::unique_ptr<Listener>> open_private(const std::filesystem::path& socket,
                                                        grpc::Service* service);
  /// Opens the TCP port for remote workers, which uses TLS only. `key` and `certificate` are in
  /// PEM. Errors: LISTEN_FAILED and ADDRESS_IN_USE, as for open_public().
  static Result<std::unique_ptr<Listener>> open_workers(const std::string& address,
                                                        const std::string& key,
                                                        const std::string& certificate,
                                                        grpc::Service* service);
  /// Opens the Unix socket at which a front end serves remote workers, for the group's members if
  /// there is one. Errors as for open_public().
  static Result<std::unique_ptr<Listener>> open_front_workers(const std::filesystem::path& socket,
                                                              std::optional<gid_t> group,
                                                              grpc::Service* service);
  ~Listener();

  /// Returns the TCP port that was bound; 0 without one.
  int port() const { return port_; }
  void set_serving(bool serving);
  /// Accepts no new calls, and cancels calls that still run after `grace`. Returns when all calls
  /// have ended.
  void shutdown(std::chrono::milliseconds grace);

 private:
  Listener();
  Status open_unix(const std::filesystem::path& path, ConnectionBounds bounds,
                   Acceptor::PassOn pass_on, std::optional<gid_t> group = std::nullopt);
  /// Returns a function that passes connections of the Unix socket to the server, each with its
  /// user's credentials.
  Acceptor::PassOn add_user_acceptors(grpc::ServerBuilder& builder);
  /// Returns a function that passes connections to the server, with these credentials.
  Acceptor::PassOn add_acceptor(grpc::ServerBuilder& builder,
                                std::shared_ptr<grpc::ServerCredentials> credentials);
  bool start(grpc::ServerBuilder& builder);

  std::unique_ptr<grpc::Service> reflection_;  // destroyed after the server, which uses it
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> external_acceptors_;
  Acceptor acceptor_;  // destroyed before `external_acceptors_`, which it uses
  std::vector<std::string> names_;
  std::vector<std::filesystem::path> unix_sockets_;  // deleted at shutdown
  int port_ = 0;
};

}  // namespace trainyard::server
