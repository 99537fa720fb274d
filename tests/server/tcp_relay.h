// tests/server/tcp_relay.h: a link between two hosts, on this one: passes bytes of TCP connections
// on, and can be slow, silent or cut, between any two bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/base/handle.h"

namespace trainyard {

class TcpRelay {
 public:
  explicit TcpRelay(int to_port) : to_port_(to_port) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    (void)::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    (void)::listen(listener_.get(), 64);
    (void)::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { accept_all(stop); });
  }
  ~TcpRelay() {
    thread_.request_stop();
    ended_ = true;
    thread_.join();
  }
  TcpRelay(const TcpRelay&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Refuses new connections and cuts those that are open.
  void cut(bool cut) {
    cut_ = cut;
    if (cut) ++cuts_;
  }
  /// Each connection is cut after so many bytes in either direction; 0: none is.
  void cut_each_after(int64_t bytes) { bytes_max_ = bytes; }
  /// The connections that are open pass nothing any more, and nobody is told: a router that forgot
  /// them. New ones pass.
  void forget() { ++generation_; }
  /// Before each piece that is passed on.
  void delay(std::chrono::milliseconds time) { delay_ms_ = time.count(); }
  int64_t bytes() const { return bytes_; }
  int connections() const { return connections_; }

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
      if (!near || cut_) continue;
      UniqueFd far(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = loopback(to_port_);
      if (::connect(far.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        continue;
      }
      ++connections_;
      pumps.emplace_back([this, near = std::move(near), far = std::move(far)] { pump(near, far); });
    }
  }

  void pump(const UniqueFd& near, const UniqueFd& far) {
    const int cuts = cuts_, generation = generation_;
    int64_t passed = 0;
    while (!ended_ && cuts == cuts_) {
      std::array<pollfd, 2> ends = {{{near.get(), POLLIN, 0}, {far.get(), POLLIN, 0}}};
      if (generation != generation_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      if (::poll(ends.data(), ends.size(), 20) <= 0) continue;
      for (size_t i = 0; i < ends.size(); ++i) {
        if (ends[i].revents == 0) continue;
        std::array<char, 16384> buffer;
        ssize_t n = ::read(ends[i].fd, buffer.data(), buffer.size());
        if (n <= 0) return;
        const int64_t bytes_max = bytes_max_;
        if (bytes_max > 0) n = std::min<ssize_t>(n, bytes_max - passed);
        if (delay_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
        for (ssize_t at = 0; at < n;) {
          const ssize_t sent =
              ::send(ends[1 - i].fd, buffer.data() + at, static_cast<size_t>(n - at), MSG_NOSIGNAL);
          if (sent <= 0) return;
          at += sent;
        }
        passed += n;
        bytes_ += n;
        if (bytes_max > 0 && passed >= bytes_max) return;  // in the middle of whatever it was
      }
    }
  }

  const int to_port_;
  int port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> cut_{false}, ended_{false};
  std::atomic<int> cuts_{0}, generation_{0}, connections_{0};
  std::atomic<int64_t> bytes_max_{0}, delay_ms_{0}, bytes_{0};
  std::jthread thread_;
};

}  // namespace trainyard
