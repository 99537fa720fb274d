// tests/support/tcp_forwarder.h: the common part of relays between two programs of this host. It
// listens on a port and opens a connection to the other program for each connection that it
// accepts.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/handle.h"

namespace trainyard::testing {

class TcpForwarder {
 public:
  /// Serves a pair of connections, numbered from 0, on its own thread.
  using Serve = std::function<void(const UniqueFd& near, const UniqueFd& far, int number)>;

  /// The destructor waits until all connections are served. While `is_open` returns false, new
  /// connections are closed.
  TcpForwarder(int to_port, std::function<bool()> is_open, Serve serve)
      : to_port_(to_port), is_open_(std::move(is_open)), serve_(std::move(serve)) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    (void)::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    (void)::listen(listener_.get(), 64);
    (void)::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { accept_all(stop); });
  }

  int port() const { return port_; }
  int connections() const { return connections_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  void accept_all(const std::stop_token& stop) {
    std::vector<std::jthread> pumps;
    while (!stop.stop_requested()) {
      pollfd waiting{listener_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      UniqueFd near(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!near || !is_open_()) continue;
      UniqueFd far(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = loopback(to_port_);
      if (::connect(far.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        continue;
      }
      pumps.emplace_back([this, near = std::move(near), far = std::move(far),
                          number = connections_++] { serve_(near, far, number); });
    }
  }

  const int to_port_;
  const std::function<bool()> is_open_;
  const Serve serve_;
  int port_ = 0;
  std::atomic<int> connections_{0};
  UniqueFd listener_;
  std::jthread thread_;  // destroyed first, since it uses the members above
};

}  // namespace trainyard::testing
