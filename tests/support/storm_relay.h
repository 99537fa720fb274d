// tests/support/storm_relay.h: a bad network between two programs of this host. Bytes of TCP
// connections arrive late and unevenly, but in order. Connections stall, break at any byte, or
// silently stop forwarding.
//
// The seed alone determines which connection fails in which way after how many of its bytes. Read
// times and the order of connections vary, so a test states what must hold in every storm, and the
// seed usually reproduces a failure.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "src/base/handle.h"
#include "tests/support/tcp_forwarder.h"

namespace trainyard::testing {

struct Storm {
  uint64_t seed = 1;
  std::chrono::milliseconds delay{0};   // in each direction
  std::chrono::milliseconds jitter{0};  // largest additional delay; bytes stay in order
  // On average each direction of a connection is reset, or stalls, after this many bytes (0:
  // never).
  double bytes_to_reset = 0;
  double bytes_to_stall = 0;
  std::chrono::milliseconds stall{0};  // how long a stalled direction forwards nothing
};

class StormRelay {
 public:
  enum class Way : uint8_t { kThere, kBack };  // from the client to the server, and back

  StormRelay(int to_port, Storm storm)
      : storm_(storm),
        forwarder_(
            to_port, [] { return true; },
            [this](const UniqueFd& near, const UniqueFd& far, int number) {
              serve(near, far, number);
            }) {}
  ~StormRelay() { ended_ = true; }
  StormRelay(const StormRelay&) = delete;

  int port() const { return forwarder_.port(); }
  std::string address() const { return forwarder_.address(); }
  /// From now on, open connections forward nothing in this direction: bytes are read and dropped.
  void silence(Way way) { ++silences_[static_cast<size_t>(way)]; }
  /// Silences all open and future connections in both directions, like a host that is cut off
  /// without notice.
  void swallow() {
    swallows_ = true;
    silence(Way::kThere);
    silence(Way::kBack);
  }
  /// Breaks all open connections.
  void reset() { ++breaks_; }

  int64_t bytes() const { return bytes_; }
  int connections() const { return forwarder_.connections(); }
  int resets() const { return resets_; }
  int stalls() const { return stalls_; }

 private:
  using Steady = std::chrono::steady_clock;
  static constexpr size_t kOnTheWayMax = 1 << 20;  // in one direction of a connection

  /// The random generator SplitMix64.
  class Dice {
   public:
    explicit Dice(uint64_t state) : state_(state) {}
    double uniform() {
      uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
    }
    /// Returns the number of bytes until the next event; the largest number if events are off.
    int64_t after(double mean) {
      if (mean <= 0) return std::numeric_limits<int64_t>::max();
      return 1 + static_cast<int64_t>(-mean * std::log1p(-uniform()));
    }

   private:
    uint64_t state_;
  };

  struct Piece {
    Steady::time_point due;
    std::string bytes;
  };
  struct Direction {
    Direction(int from_fd, int to_fd, uint64_t seed) : from(from_fd), to(to_fd), dice(seed) {}
    int from, to;
    Dice dice;
    std::deque<Piece> on_the_way = {};
    size_t waiting_bytes = 0, sent_of_first = 0;
    Steady::time_point newest_due = {}, stands_until = {};
    int64_t to_reset = 0, to_stall = 0;
    bool ended = false, forwarded_end = false, silent = false;
  };

  void serve(const UniqueFd& near, const UniqueFd& far, int number) {
    for (const UniqueFd* end : {&near, &far}) {
      const int yes = 1;
      (void)::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      (void)::fcntl(end->get(), F_SETFL, O_NONBLOCK);
    }
    pump(near, far, static_cast<uint64_t>(number));
  }

  /// Prepares both ends for a reset: with an SO_LINGER time of 0, close() sends one.
  void break_off(const UniqueFd& near, const UniqueFd& far) {
    const linger now{1, 0};
    for (const UniqueFd* end : {&near, &far}) {
      (void)::setsockopt(end->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    ++resets_;
  }

  void pump(const UniqueFd& near, const UniqueFd& far, uint64_t number) {
    const uint64_t seed = storm_.seed * 1'000'003 + number * 2;
    std::array<Direction, 2> ways = {Direction(near.get(), far.get(), seed),
                                     Direction(far.get(), near.get(), seed + 1)};
    const int breaks = breaks_;
    std::array<int, 2> silences = {silences_[0], silences_[1]};
    for (Direction& way : ways) {
      way.to_reset = way.dice.after(storm_.bytes_to_reset);
      way.to_stall = way.dice.after(storm_.bytes_to_stall);
      way.silent = swallows_;
    }
    while (!ended_) {
      if (breaks != breaks_) return break_off(near, far);
      for (size_t i = 0; i < 2; ++i) ways[i].silent |= silences[i] != silences_[i];
      if (ways[0].forwarded_end && ways[1].forwarded_end) return;
      wait(ways);
      for (Direction& way : ways) {
        if (!take(way) || !pass_on(way)) return break_off(near, far);
      }
    }
  }

  static void wait(std::array<Direction, 2>& ways) {
    std::array<pollfd, 2> ends = {{{ways[0].from, 0, 0}, {ways[1].from, 0, 0}}};
    int timeout_ms = 20;
    for (size_t i = 0; i < 2; ++i) {
      const Direction& way = ways[i];
      if (!way.ended && way.waiting_bytes < kOnTheWayMax) ends[i].events |= POLLIN;
      if (way.on_the_way.empty()) continue;
      const auto due = std::max(way.on_the_way.front().due, way.stands_until) - Steady::now();
      if (due <= Steady::duration::zero()) {
        ends[1 - i].events |= POLLOUT;
      } else {
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(due).count() + 1;
        timeout_ms = static_cast<int>(std::min<int64_t>(timeout_ms, ms));
      }
    }
    for (pollfd& end : ends) {
      if (end.events == 0) end.fd = -1;  // otherwise a hangup would end each poll immediately
    }
    (void)::poll(ends.data(), ends.size(), timeout_ms);
  }

  /// Reads the available bytes. Returns false if the connection broke.
  bool take(Direction& way) {
    if (way.ended || way.waiting_bytes >= kOnTheWayMax) return true;
    std::array<char, 16384> buffer;
    const ssize_t n = ::read(way.from, buffer.data(), buffer.size());
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
      way.ended = true;
      return true;
    }
    if (way.silent) return true;
    const auto late =
        std::chrono::duration_cast<Steady::duration>(way.dice.uniform() * storm_.jitter);
    way.newest_due = std::max(way.newest_due, Steady::now() + storm_.delay + late);
    way.waiting_bytes += static_cast<size_t>(n);
    way.on_the_way.push_back({way.newest_due, std::string(buffer.data(), static_cast<size_t>(n))});
    return true;
  }

  /// Sends the bytes that are due. Returns false if the connection must break now.
  bool pass_on(Direction& way) {
    const auto now = Steady::now();
    while (!way.on_the_way.empty() && way.on_the_way.front().due <= now &&
           way.stands_until <= now) {
      if (way.silent) {  // bytes on their way are lost too
        way.on_the_way.clear();
        way.waiting_bytes = way.sent_of_first = 0;
        break;
      }
      const std::string& bytes = way.on_the_way.front().bytes;
      const int64_t left = std::ssize(bytes) - static_cast<int64_t>(way.sent_of_first);
      const int64_t most = std::min({left, way.to_reset, way.to_stall});
      const ssize_t n =
          ::send(way.to, bytes.data() + way.sent_of_first, static_cast<size_t>(most), MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      bytes_ += n;
      way.to_reset -= n;
      way.to_stall -= n;
      way.sent_of_first += static_cast<size_t>(n);
      way.waiting_bytes -= static_cast<size_t>(n);
      if (way.sent_of_first == bytes.size()) {
        way.on_the_way.pop_front();
        way.sent_of_first = 0;
      }
      if (way.to_reset == 0) return false;
      if (way.to_stall == 0) {
        way.to_stall = way.dice.after(storm_.bytes_to_stall);
        way.stands_until = now + storm_.stall;
        ++stalls_;
      }
    }
    if (way.ended && way.on_the_way.empty() && !way.forwarded_end) {
      way.forwarded_end = true;
      if (!way.silent) (void)::shutdown(way.to, SHUT_WR);
    }
    return true;
  }

  const Storm storm_;
  std::atomic<bool> ended_{false}, swallows_{false};
  std::array<std::atomic<int>, 2> silences_{};
  std::atomic<int> breaks_{0}, resets_{0}, stalls_{0};
  std::atomic<int64_t> bytes_{0};
  TcpForwarder forwarder_;  // destroyed first, since its destructor waits for all pumps
};

}  // namespace trainyard::testing
