// server/rpc/acceptor.h: listening sockets that accept connections and pass them to gRPC.
//
// gRPC's own listener silently stops forever when a connection arrives while no descriptor is free,
// and it has no limit on connections. This one closes connections beyond its limits and continues
// after running out of descriptors. At a limit, TCP connections without an admitted call make room
// for new ones, so that a few addresses with idle connections lock nobody out.
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

/// Limits on the connections that one listening socket has open at the same time.
struct ConnectionBounds {
  int connections = 0;            // all together
  int connections_of_a_peer = 0;  // per address; on a Unix socket per user
};

/// Accepts connections on any number of sockets, in one thread. The destructor stops it;
/// connections that were passed on stay open.
class Acceptor {
 public:
  /// Takes ownership of `fd`, a connected, non-blocking socket.
  using PassOn = std::function<void(int fd)>;

  Acceptor();
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;

  /// Listens on a Unix socket, which this user may use and, with a `group`, the group's members.
  /// Deletes an existing file at `path`, so the caller must have checked that no process serves on
  /// it. FAILED_PRECONDITION/ADDRESS_IN_USE, LISTEN_FAILED.
  Status listen_unix(const std::filesystem::path& path, ConnectionBounds bounds, PassOn pass_on,
                     std::optional<gid_t> group = std::nullopt);
  /// Listens on every address of the host's name that this machine has. Returns the port; for port
  /// 0 the kernel chooses one.
  Result<int> listen_tcp(const HostPort& address, ConnectionBounds bounds, PassOn pass_on);
  /// Must be called after the last listen_unix() or listen_tcp().
  void start();
  /// Accepts no more connections and closes the listening sockets.
  void stop();
  /// Returns the user at the other end of a connected Unix socket, according to the kernel.
  static std::optional<uid_t> user_of(int fd);

 private:
  struct Connection {
    // The socket's; shows whether the descriptor still belongs to this connection.
    uint64_t inode = 0;
    std::string peer;
    std::string place;  // address and port (admitted_peers.h); empty on a Unix socket
    int64_t since_us = 0;
  };
  using Open = std::map<int, Connection>;  // by descriptor
  struct Socket {
    UniqueFd fd;
    std::string name;  // for the log
    ConnectionBounds bounds;
    PassOn pass_on;
    Open open;
    std::map<std::string, int> peers;
    int64_t refused = 0;  // since the last log line
    int64_t logged_us = 0;
  };
  void run();
  void accept_all(Socket& socket);
  void take(Socket& socket, UniqueFd fd);
  /// Returns why the socket cannot take a connection of this peer, or null if it can. Closed
  /// connections may still be counted.
  static const char* lacks_room(const Socket& socket, const std::string& peer);
  /// Closes a connection without an admitted call, so that there is room for one of `peer`. False
  /// if there is none that may be closed for it.
  static bool make_room(Socket& socket, const std::string& peer);
  static Open::iterator find_stranger(Socket& socket, const std::string& peer);
  static void refuse(Socket& socket, const char* why);
  static void forget_closed(Socket& socket);
  static void forget(Socket& socket, Open::iterator it);

  std::vector<Socket> sockets_;
  UniqueFd wake_;
  // Closed briefly when no descriptor is free, so that a connection can be accepted and closed.
  UniqueFd spare_;
  std::thread thread_;
};

/// Returns the most descriptors that this process may open, after raising the soft limit to the
/// hard one.
int64_t raise_descriptor_limit();

}  // namespace trainyard::server
