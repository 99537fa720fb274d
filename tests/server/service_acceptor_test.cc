// Tests of the acceptor with too many connections and without a free file descriptor: refused
// connections are closed, and the acceptor continues. gRPC's own listener would stop accepting
// forever.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "server/rpc/acceptor.h"
#include "server/rpc/admitted_peers.h"
#include "tests/server/store_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

using std::chrono::milliseconds;

class AcceptorTest : public ::testing::Test {
 protected:
  Acceptor::PassOn keep() {
    return [this](int fd) {
      const std::lock_guard lock(mu_);
      taken_.emplace_back(fd);
      changed_.notify_all();
    };
  }
  bool has_taken(size_t count) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, patience(), [&] { return taken_.size() >= count; });
  }
  void close_one() {
    const std::lock_guard lock(mu_);
    taken_.pop_front();
  }
  UniqueFd connect_unix() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.string().copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      fd.reset();
    }
    return fd;
  }
  /// Connects from 127.0.0.`from`.
  static UniqueFd connect_tcp(int port, uint32_t from = 1) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      fd.reset();
    }
    return fd;
  }
  /// Waits a while and returns whether the other end closed the connection.
  static bool is_refused(const UniqueFd& fd) {
    pollfd polled{fd.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&polled, 1, 3000) == 1 && ::read(fd.get(), &byte, 1) <= 0;
  }

  TemporaryDirectory folder_;
  const std::filesystem::path path_ = folder_.path() / "socket";
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<UniqueFd> taken_;  // guarded by mu_
  Acceptor acceptor_;  // declared last, so that it stops before the members above are destroyed
};

TEST_F(AcceptorTest, LimitsOpenConnectionsAndForgetsClosedOnes) {
  ASSERT_TRUE(acceptor_.listen_unix(path_, {3, 3}, keep()).ok());
  acceptor_.start();
  std::deque<UniqueFd> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(connect_unix());
  ASSERT_TRUE(has_taken(3));
  EXPECT_TRUE(is_refused(connect_unix()));
  close_one();  // the server closes it without informing the acceptor
  clients.push_back(connect_unix());
  EXPECT_TRUE(has_taken(3));
}

TEST_F(AcceptorTest, AGroupMayUseTheSocketIfOneIsNamed) {
  const auto shown = [this] {
    struct stat info {};
    EXPECT_EQ(::stat(path_.c_str(), &info), 0);
    return std::pair(info.st_mode & 0777, info.st_gid);
  };
  ASSERT_TRUE(acceptor_.listen_unix(path_, {3, 3}, keep()).ok());
  EXPECT_EQ(shown().first, 0600u);
  // root may give files to any group, others to the groups that they are in
  const gid_t group = ::geteuid() == 0 ? 65534 : ::getegid();
  ASSERT_TRUE(acceptor_.listen_unix(path_, {3, 3}, keep(), group).ok());
  EXPECT_EQ(shown(), std::pair(0660u, group));
}

TEST_F(AcceptorTest, OnePeerCannotUseAllConnections) {
  const Result<int> port = acceptor_.listen_tcp({"127.0.0.1", 0}, {10, 2}, keep());
  ASSERT_TRUE(port.ok());
  acceptor_.start();
  const UniqueFd a = connect_tcp(*port), b = connect_tcp(*port);
  ASSERT_TRUE(has_taken(2));
  EXPECT_TRUE(is_refused(connect_tcp(*port)));
  close_one();
  const UniqueFd c = connect_tcp(*port);
  EXPECT_TRUE(has_taken(2)) << "what was closed counts no more";
}

/// Returns the "address:port" of a client's end of a connection.
std::string place_of(const UniqueFd& client) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  EXPECT_EQ(::getsockname(client.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return "127.0.0." + std::to_string(ntohl(address.sin_addr.s_addr) & 0xff) + ":" +
         std::to_string(ntohs(address.sin_port));
}

// Idle connections of two addresses locked all others out of TCP for an hour.
TEST_F(AcceptorTest, StrangersMakeRoomForOthersAndAdmittedPeersDoNot) {
  const Result<int> port = acceptor_.listen_tcp({"127.0.0.1", 0}, {5, 3}, keep());
  ASSERT_TRUE(port.ok());
  acceptor_.start();
  std::deque<UniqueFd> idle;
  for (const uint32_t from : {1, 1, 1, 2, 2}) idle.push_back(connect_tcp(*port, from));
  ASSERT_TRUE(has_taken(5));
  admitted_peers().admit("ipv4:" + place_of(idle[0]));
  const UniqueFd other = connect_tcp(*port, 3);
  ASSERT_TRUE(has_taken(6)) << "the address with most connections makes room";
  EXPECT_TRUE(is_refused(idle[1])) << "by its oldest one that made no call";
  EXPECT_TRUE(is_refused(connect_tcp(*port, 2))) << "not for another that has as many";
  for (const UniqueFd& client : idle) admitted_peers().admit("ipv4:" + place_of(client));
  admitted_peers().admit("ipv4:" + place_of(other));
  EXPECT_TRUE(is_refused(connect_tcp(*port, 4)));
}

TEST(AdmittedPeers, AreFoundByTheNamesThatGrpcGivesThem) {
  AdmittedPeers peers;
  peers.add("[::1]:7450");
  peers.admit("ipv6:%5B::1%5D:7451");
  EXPECT_FALSE(peers.is_admitted("[::1]:7450"));
  peers.admit("ipv6:%5B::1%5D:7450");
  EXPECT_TRUE(peers.is_admitted("[::1]:7450"));
  peers.remove("[::1]:7450");
  peers.admit("ipv6:[::1]:7450");
  EXPECT_FALSE(peers.is_admitted("[::1]:7450")) << "it was closed";
}

TEST_F(AcceptorTest, AHostNameIsServedAtItsAvailableAddresses) {
  const Result<int> port = acceptor_.listen_tcp({"localhost", 0}, {10, 10}, keep());
  ASSERT_TRUE(port.ok()) << port.error().message;
  acceptor_.start();
  const UniqueFd client = connect_tcp(*port);
  EXPECT_TRUE(has_taken(1));
}

TEST_F(AcceptorTest, F35AcceptsAgainAfterRunningOutOfDescriptors) {
  ASSERT_TRUE(acceptor_.listen_unix(path_, {1000, 1000}, keep()).ok());
  acceptor_.start();
  // The clients' descriptors count too, so create these sockets before the descriptors run out.
  std::deque<UniqueFd> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(clients.back().get()) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.string().copy(address.sun_path, sizeof address.sun_path - 1);
  for (const UniqueFd& client : clients) {
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_TRUE(is_refused(client));
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next = connect_unix();
  EXPECT_TRUE(has_taken(1));
}

TEST_F(AcceptorTest, AnAddressInUseIsNamed) {
  const int port = acceptor_.listen_tcp({"127.0.0.1", 0}, {1, 1}, keep()).value();
  Acceptor second;
  const Result<int> taken = second.listen_tcp({"127.0.0.1", port}, {1, 1}, keep());
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().reason, "ADDRESS_IN_USE");
  EXPECT_NE(taken.error().message.find(std::to_string(port)), std::string::npos);
  EXPECT_EQ(second.listen_tcp({"no such host", 1}, {1, 1}, keep()).error().reason, "LISTEN_FAILED");
  EXPECT_EQ(second.listen_unix(folder_.path() / "no/folder", {1, 1}, keep()).error().reason,
            "LISTEN_FAILED");
}

}  // namespace
}  // namespace trainyard::server
