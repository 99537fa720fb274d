#include "server/rpc/acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "server/config/log.h"
#include "server/rpc/admitted_peers.h"
#include "src/base/check.h"
#include "src/base/clock.h"

namespace trainyard::server {
namespace {

constexpr int kBacklog = 512;
constexpr int kNoMemoryPauseMs = 100;
// The time that a new connection has for its handshake and its first call.
constexpr int64_t kFirstCallUs = 10'000'000;
constexpr int64_t kLogIntervalUs = 10'000'000;
constexpr int64_t kDescriptorsWanted = 65536;  // a higher limit has no benefit

Error listen_error(const std::string& where, int error) {
  return make_error(ErrorCode::kFailedPrecondition,
                    error == EADDRINUSE ? "ADDRESS_IN_USE" : "LISTEN_FAILED",
                    "cannot listen on " + where + ": " + std::strerror(error));
}

uint64_t inode_of(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? st.st_ino : 0;
}

struct Peer {
  std::string name;   // the address without the port, or the user on a Unix socket
  std::string place;  // address and port; empty on a Unix socket
};

Peer peer_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return {"unknown", ""};
  }
  if (address.ss_family == AF_UNIX) {
    const std::optional<uid_t> user = Acceptor::user_of(fd);
    return {user ? "uid " + std::to_string(*user) : "unknown", ""};
  }
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {"unknown", ""};
  }
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address on a socket for both
  std::string name = host;
  if (name.starts_with(kMapped) && name.find('.') != name.npos) name.erase(0, kMapped.size());
  const bool brackets = name.find(':') != name.npos;
  return {name, (brackets ? "[" + name + "]" : name) + ":" + port};
}

/// Ends a connection that gRPC owns; gRPC then closes the descriptor. The copy guarantees that the
/// descriptor still belongs to the connection with this inode.
void end_connection(int fd, uint64_t inode) {
  const UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (copy && inode_of(copy.get()) == inode) (void)::shutdown(copy.get(), SHUT_RDWR);
}

bool lacks_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

int64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, kDescriptorsWanted);
  if (limit.rlim_cur < wanted) {
    rlimit raised = limit;
    raised.rlim_cur = wanted;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kDescriptorsWanted));
}

Acceptor::Acceptor()
    : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  TRAINYARD_CHECK(wake_ && spare_, "eventfd or /dev/null cannot be opened");
}

Acceptor::~Acceptor() { stop(); }

std::optional<uid_t> Acceptor::user_of(int fd) {
  ucred user{};
  socklen_t size = sizeof user;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size) != 0) return std::nullopt;
  return user.uid;
}

Status Acceptor::listen_unix(const std::filesystem::path& path, ConnectionBounds bounds,
                             PassOn pass_on, std::optional<gid_t> group) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.string().size() >= sizeof address.sun_path) return listen_error(path, ENAMETOOLONG);
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  (void)::unlink(path.c_str());
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0) {
    return listen_error(path.string(), errno);
  }
  if (group && (::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0 ||
                ::chmod(path.c_str(), 0660) != 0)) {
    return make_error(ErrorCode::kFailedPrecondition, "LISTEN_FAILED",
                      "cannot give " + path.string() +
                          " to its group: the daemon's user must be a member of that group");
  }
  if (::listen(fd.get(), kBacklog) != 0) return listen_error(path.string(), errno);
  sockets_.push_back({std::move(fd), path.string(), bounds, std::move(pass_on), {}, {}, 0, 0});
  return {};
}

Result<int> Acceptor::listen_tcp(const HostPort& address, ConnectionBounds bounds, PassOn pass_on) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const std::string where = address.host + ":" + std::to_string(address.port);
  addrinfo* found = nullptr;
  if (const int err =
          ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      err != 0) {
    return make_error(ErrorCode::kFailedPrecondition, "LISTEN_FAILED",
                      "cannot listen on " + where + ": " + ::gai_strerror(err));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  int port = address.port, error = EADDRNOTAVAIL;
  bool listens = false;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    sockaddr_storage bound{};
    std::memcpy(&bound, a->ai_addr, a->ai_addrlen);
    // If port 0 was requested, all addresses of the name get the port that the kernel chose for the
    // first.
    if (a->ai_family == AF_INET) reinterpret_cast<sockaddr_in&>(bound).sin_port = htons(port);
    if (a->ai_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(bound).sin6_port = htons(port);
    UniqueFd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&bound), a->ai_addrlen) != 0 ||
        ::listen(fd.get(), kBacklog) != 0) {
      error = errno;
      if (error == EADDRINUSE) break;  // another process would serve some of the name's addresses
      continue;                        // such as localhost's ::1 on a machine without IPv6
    }
    socklen_t length = sizeof bound;
    (void)::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    port = ntohs(a->ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(bound).sin_port);
    sockets_.push_back({std::move(fd), where, bounds, pass_on, {}, {}, 0, 0});
    listens = true;
  }
  if (!listens || error == EADDRINUSE) return listen_error(where, error);
  return port;
}

void Acceptor::start() {
  thread_ = std::thread([this] { run(); });
}

void Acceptor::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  sockets_.clear();
}

void Acceptor::run() {
  std::vector<pollfd> polled;
  for (const Socket& socket : sockets_) polled.push_back({socket.fd.get(), POLLIN, 0});
  polled.push_back({wake_.get(), POLLIN, 0});
  for (;;) {
    (void)::poll(polled.data(), polled.size(), -1);
    if (polled.back().revents != 0) return;
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (polled[i].revents != 0) accept_all(sockets_[i]);
    }
  }
}

void Acceptor::accept_all(Socket& socket) {
  for (;;) {
    UniqueFd fd(::accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = errno;
    if (fd) {
      take(socket, std::move(fd));
      continue;
    }
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    if (!lacks_resources(error)) continue;  // closed by the client: try the next one
    // A connection that is not accepted stays in the backlog, and poll() would return immediately
    // each time. So accept it with the spare descriptor and close it.
    spare_.reset();
    UniqueFd refused(::accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const bool none = !refused;
    refused.reset();
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    refuse(socket, "no file descriptor or memory is available");
    if (none) std::this_thread::sleep_for(std::chrono::milliseconds(kNoMemoryPauseMs));
    return;
  }
}

void Acceptor::take(Socket& socket, UniqueFd fd) {
  // accept_all() may have been unable to reopen it.
  if (!spare_) spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const uint64_t inode = inode_of(fd.get());
  Peer peer = peer_of(fd.get());
  const char* full = lacks_room(socket, peer.name);
  if (full != nullptr) {  // the counts may include closed connections
    forget_closed(socket);
    full = lacks_room(socket, peer.name);
  }
  if (full != nullptr && make_room(socket, peer.name)) full = lacks_room(socket, peer.name);
  if (full != nullptr) return refuse(socket, full);
  // gRPC sets these options on connections that it accepts itself. A Unix socket supports neither
  // of them.
  const int on = 1, silence_ms = 20'000;
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
  forget(socket, socket.open.find(fd.get()));  // an earlier connection, closed since
  ++socket.peers[peer.name];
  if (!peer.place.empty()) admitted_peers().add(peer.place);
  socket.open[fd.get()] = {inode, std::move(peer.name), std::move(peer.place),
                           system_clock().steady_us()};
  socket.pass_on(fd.release());
}

const char* Acceptor::lacks_room(const Socket& socket, const std::string& peer) {
  if (std::ssize(socket.open) >= socket.bounds.connections) {
    return "the limit on open connections is reached";
  }
  const auto it = socket.peers.find(peer);
  return it != socket.peers.end() && it->second >= socket.bounds.connections_of_a_peer
             ? "one peer has reached its limit on open connections"
             : nullptr;
}

bool Acceptor::make_room(Socket& socket, const std::string& peer) {
  const auto stranger = find_stranger(socket, peer);
  if (stranger == socket.open.end()) return false;
  end_connection(stranger->first, stranger->second.inode);
  forget(socket, stranger);
  return true;
}

/// Returns the oldest connection without an admitted call of the peer that has most of them. A new
/// one is spared, unless its peer has more connections than `peer` would have.
Acceptor::Open::iterator Acceptor::find_stranger(Socket& socket, const std::string& peer) {
  const auto is_stranger = [](const Connection& c) {
    return !c.place.empty() && !admitted_peers().is_admitted(c.place);
  };
  const auto of_peer = socket.peers.find(peer);
  const int own = of_peer == socket.peers.end() ? 0 : of_peer->second;
  const bool only_own = own >= socket.bounds.connections_of_a_peer;
  std::map<std::string, int> counts;
  for (const auto& [fd, c] : socket.open) {
    if (is_stranger(c) && (!only_own || c.peer == peer)) ++counts[c.peer];
  }
  const auto most = std::ranges::max_element(
      counts, {}, [](const std::pair<const std::string, int>& count) { return count.second; });
  if (most == counts.end()) return socket.open.end();
  auto oldest = socket.open.end();
  for (auto it = socket.open.begin(); it != socket.open.end(); ++it) {
    if (it->second.peer != most->first || !is_stranger(it->second)) continue;
    if (oldest == socket.open.end() || it->second.since_us < oldest->second.since_us) oldest = it;
  }
  const bool is_new = system_clock().steady_us() - oldest->second.since_us < kFirstCallUs;
  return is_new && most->second <= own + 1 ? socket.open.end() : oldest;
}

void Acceptor::refuse(Socket& socket, const char* why) {
  ++socket.refused;
  if (const int64_t now_us = system_clock().steady_us();
      socket.logged_us == 0 || now_us - socket.logged_us >= kLogIntervalUs) {
    spdlog::warn("event=connections_refused {} count={} open={} {}", kv("socket", socket.name),
                 socket.refused, socket.open.size(), kv("reason", why));
    socket.logged_us = now_us;
    socket.refused = 0;
  }
}

// gRPC closes connections without a notification. A connection was closed if its descriptor is not
// open or belongs to another socket.
void Acceptor::forget_closed(Socket& socket) {
  for (auto it = socket.open.begin(); it != socket.open.end();) {
    const auto next = std::next(it);
    if (inode_of(it->first) != it->second.inode) forget(socket, it);
    it = next;
  }
}

void Acceptor::forget(Socket& socket, Open::iterator it) {
  if (it == socket.open.end()) return;
  if (!it->second.place.empty()) admitted_peers().remove(it->second.place);
  TRAINYARD_CHECK(socket.peers[it->second.peer] > 0, "a peer closes more connections than it has");
  if (--socket.peers[it->second.peer] == 0) socket.peers.erase(it->second.peer);
  socket.open.erase(it);
}

}  // namespace trainyard::server
