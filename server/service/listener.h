// server/service/listener.h: the gRPC servers: limits, sockets, TLS, health, reflection.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/config/token.h"
#include "src/base/result.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace trainyard::server {

/// A message may be that long, either way.
inline constexpr int kMessageBytesMax = 4 << 20;

/// A running server. Stops, waiting for its handlers, when destroyed.
class Listener {
 public:
  /// The public API: the Unix socket (mode 0600) and, if configured, TCP. Refusals, one sentence
  /// each: FAILED_PRECONDITION/ADDRESS_IN_USE, LISTEN_FAILED; TLS files that cannot be read.
  static Result<std::unique_ptr<Listener>> open_public(const Config& config, const Token* token,
                                                       const std::vector<grpc::Service*>& services,
                                                       const std::vector<std::string>& names);
  /// The workers' socket.
  static Result<std::unique_ptr<Listener>> open_private(const std::filesystem::path& socket,
                                                        grpc::Service* service);
  ~Listener();

  /// The TCP port that was bound; 0 without one.
  int port() const { return port_; }
  void set_serving(bool serving);
  /// No new calls; calls still under way after `grace` are cancelled. Returns when none is left.
  void shutdown(std::chrono::milliseconds grace);

 private:
  Listener() = default;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> names_;
  std::filesystem::path socket_;
  int port_ = 0;
};

}  // namespace trainyard::server
