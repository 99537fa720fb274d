// server/rpc/acceptor.h: listening sockets of our own, whose connections are handed to gRPC.
//
// gRPC's own listener stops for ever, without a word, when a connection comes while no descriptor
// is free, and it has no bound for connections. This one refuses what is beyond its bounds by
// closing it, survives the lack of descriptors, and goes on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/config/config.h"
#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

/// What one listening socket may hold at once.
struct ConnectionBounds {
  int connections = 0;            // in all
  int connections_of_a_peer = 0;  // of one address; of one user on a Unix socket
};

/// Accepts on any number of sockets, in one thread. Stops when destroyed; connections that were
/// handed over stay with who got them.
class Acceptor {
 public:
  /// Takes over `fd`, connected and non-blocking.
  using HandOver = std::function<void(int fd)>;

  Acceptor();
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;

  /// FAILED_PRECONDITION/ADDRESS_IN_USE, LISTEN_FAILED. Mode 0600. Replaces a socket that nobody
  /// serves.
  Status listen_unix(const std::filesystem::path& path, ConnectionBounds bounds,
                     HandOver hand_over);
  /// Every address that the host's name has and that this machine has. Returns the port, which is
  /// made up for port 0.
  Result<int> listen_tcp(const HostPort& address, ConnectionBounds bounds, HandOver hand_over);
  /// After the last listen.
  void start();
  /// No more connections; the sockets are closed.
  void stop();
  /// The user at the other end of a connected Unix socket, as the kernel knows it.
  static std::optional<uid_t> user_of(int fd);

 private:
  struct Connection {
    uint64_t inode = 0;  // of the socket: tells whether the descriptor is still this connection's
    std::string peer;
  };
  struct Socket {
    UniqueFd fd;
    std::string name;  // for the log
    ConnectionBounds bounds;
    HandOver hand_over;
    std::map<int, Connection> open;  // by descriptor
    std::map<std::string, int> peers;
    int64_t refused = 0;  // since the last line of the log
    int64_t told_us = 0;
  };
  void run();
  void accept_all(Socket& socket);
  void take(Socket& socket, UniqueFd fd);
  /// Why the socket cannot take a connection of this peer, as far as is known; or null.
  static const char* lacks_room(const Socket& socket, const std::string& peer);
  static void refuse(Socket& socket, const char* why);
  static void forget_closed(Socket& socket);
  static void forget(Socket& socket, std::map<int, Connection>::iterator it);

  std::vector<Socket> sockets_;
  UniqueFd wake_;
  UniqueFd spare_;  // given up for a moment, to close what comes while no descriptor is free
  std::thread thread_;
};

/// The most descriptors that this process may open, after raising the soft limit to the hard one.
int64_t raise_descriptor_limit();

}  // namespace trainyard::server
