// server/rpc/listener.h: the gRPC servers: limits, sockets, TLS, health, reflection.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/config/token.h"
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

/// The longest message, in either direction.
inline constexpr int kMessageBytesMax = 4 << 20;

/// What a public connection may have.
struct ConnectionRules {
  // New certificates and tokens take effect within the hour; streams resume where they were.
  int64_t age_ms = 3'600'000;
  int64_t age_grace_ms = 300'000;                  // for calls that still run by then
  size_t transport_bytes_max = size_t{256} << 20;  // of all connections of a server
};

/// A running server. Stops, waiting for its handlers, when destroyed.
class Listener {
 public:
  /// The public API: the Unix socket (mode 0600) and, if configured, TCP. Refusals, one sentence
  /// each: FAILED_PRECONDITION/ADDRESS_IN_USE, LISTEN_FAILED; TLS files that cannot be read.
  static Result<std::unique_ptr<Listener>> open_public(const Config& config, const Tokens* tokens,
                                                       const std::vector<grpc::Service*>& services,
                                                       const std::vector<std::string>& names,
                                                       const ConnectionRules& rules = {});
  /// The workers' socket.
  static Result<std::unique_ptr<Listener>> open_private(const std::filesystem::path& socket,
                                                        grpc::Service* service);
  /// The port for workers from elsewhere, TLS alone: `key` and `certificate` in PEM. LISTEN_FAILED
  /// and ADDRESS_IN_USE as above.
  static Result<std::unique_ptr<Listener>> open_workers(const std::string& address,
                                                        const std::string& key,
                                                        const std::string& certificate,
                                                        grpc::Service* service);
  ~Listener();

  /// The TCP port that was bound; 0 without one.
  int port() const { return port_; }
  void set_serving(bool serving);
  /// Accepts no new calls; cancels calls that still run after `grace`. Returns when none is left.
  void shutdown(std::chrono::milliseconds grace);

 private:
  Listener();
  Status open_unix(const std::filesystem::path& path, ConnectionBounds bounds,
                   Acceptor::HandOver hand_over);
  /// What brings connections of the Unix socket into the server, each by its user's door.
  Acceptor::HandOver add_user_doors(grpc::ServerBuilder& builder);
  /// What brings connections into the server, under these credentials.
  Acceptor::HandOver add_door(grpc::ServerBuilder& builder,
                              std::shared_ptr<grpc::ServerCredentials> credentials);
  bool start(grpc::ServerBuilder& builder);

  std::unique_ptr<grpc::Service> reflection_;  // before the server that uses it
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> doors_;
  Acceptor acceptor_;  // before the doors that it uses
  std::vector<std::string> names_;
  std::filesystem::path socket_;
  int port_ = 0;
};

}  // namespace trainyard::server
