// tests/server/tcp_relay.h: simulates a link between two hosts. It forwards TCP connections and can
// be slow or silent, or cut connections between any two bytes.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "src/base/handle.h"
#include "tests/support/tcp_forwarder.h"

namespace trainyard {

class TcpRelay {
 public:
  explicit TcpRelay(int to_port)
      : forwarder_(
            to_port, [this] { return !cut_; },
            [this](const UniqueFd& near, const UniqueFd& far, int) { pump(near, far); }) {}
  ~TcpRelay() { ended_ = true; }
  TcpRelay(const TcpRelay&) = delete;

  std::string address() const { return forwarder_.address(); }
  /// While set, refuses new connections; setting it also cuts the open ones.
  void cut(bool cut) {
    cut_ = cut;
    if (cut) ++cuts_;
  }
  /// Cuts each connection after this many bytes in either direction; 0 cuts none.
  void cut_each_after(int64_t bytes) { bytes_max_ = bytes; }
  /// Silently stops forwarding on all open connections, as a router does that has forgotten them.
  /// New connections work.
  void forget() { ++generation_; }
  /// Sets the delay before each forwarded piece.
  void delay(std::chrono::milliseconds time) { delay_ms_ = time.count(); }
  int64_t bytes() const { return bytes_; }
  int connections() const { return forwarder_.connections(); }

 private:
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
        if (bytes_max > 0 && passed >= bytes_max) return;  // cuts in the middle of any message
      }
    }
  }

  std::atomic<bool> cut_{false}, ended_{false};
  std::atomic<int> cuts_{0}, generation_{0};
  std::atomic<int64_t> bytes_max_{0}, delay_ms_{0}, bytes_{0};
  testing::TcpForwarder forwarder_;  // destroyed first, since its destructor waits for all pumps
};

}  // namespace trainyard
