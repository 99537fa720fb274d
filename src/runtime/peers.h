// src/runtime/peers.h: the processes that train one job together, on one host or on several, each
// with the same number of ranks (docs/decisions/0105).
//
// Each is connected to each of the others (peer_link.h) before the first step. All of them make the
// same calls in the same order; every call says how many bytes it expects, and a message that has
// others is a fault. A process that goes takes the job with it: whoever waits for it, or comes to
// wait for it, throws RankLost.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/handle.h"
#include "src/base/result.h"
#include "src/runtime/communicator.h"
#include "src/runtime/peer_link.h"

namespace trainyard {

/// Where the other processes reach this one.
class PeerListener {
 public:
  /// At a free port of a numeric address of this host. UNAVAILABLE/PEER_LISTENER.
  static Result<PeerListener> open(const std::string& address);
  const PeerEndpoint& endpoint() const { return endpoint_; }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  PeerEndpoint endpoint_;
};

struct PeerOptions {
  int64_t ranks_each = 1;                  // of every process
  std::chrono::milliseconds meet{60'000};  // until all are connected
  // For others from which nothing comes. Less than the time without progress after which the daemon
  // ends a worker (stall_timeout_seconds), which does not know the rank that is waited for.
  std::chrono::milliseconds quiet{480'000};
};

/// One thread at a time, but for abort() and awaited().
class Peers {
 public:
  /// Connects to all others. `all` by process, this one included.
  /// INVALID_ARGUMENT/PEER_ENDPOINT, PEER_GROUP; UNAUTHENTICATED/PEER_KEY if another process knows
  /// another key; DEADLINE_EXCEEDED/PEERS_MISSING, naming them; CANCELLED/STOPPED.
  static Result<std::shared_ptr<Peers>> connect(PeerListener listener, PeerIdentity me,
                                                const std::vector<PeerEndpoint>& all,
                                                const PeerOptions& options = {},
                                                const std::stop_token& stop = {});
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int64_t index() const { return me_.index; }
  int64_t count() const { return me_.count; }
  int64_t ranks_each() const { return options_.ranks_each; }
  int64_t ranks() const { return count() * ranks_each(); }
  int64_t first_rank() const { return index() * ranks_each(); }
  /// Where the others reach this one.
  const std::string& address() const { return address_; }
  /// As it was given to connect(): for what the processes set up together.
  std::chrono::milliseconds meet_limit() const { return options_.meet; }
  const std::stop_token& stop() const { return stop_; }
  /// "rank 2", or "ranks 4 to 7".
  std::string name_of(int64_t process) const;

  // By process; this one's own entry is empty.
  using Outgoing = std::vector<std::vector<std::span<const std::byte>>>;
  using Incoming = std::vector<std::vector<std::span<std::byte>>>;
  /// Sends and receives, with all at once. Throws RankLost, or ExchangeAborted after abort().
  void exchange(const Outgoing& out, const Incoming& in);

  /// `all` has a part of the same size for each process, in their order; this one's is there.
  void all_gather(std::span<std::byte> all);
  /// The bytes of process `from` become those of all.
  void broadcast(int64_t from, std::span<std::byte> bytes);
  /// Process 0's text, of which the first kTextBytesMax bytes travel.
  static constexpr size_t kTextBytesMax = 4096;
  std::string of_first(std::string_view text);
  /// Whether it is so in any process.
  bool any(bool here);
  /// What each process says, by process: at most kTextOfEachMax bytes of it.
  static constexpr size_t kTextOfEachMax = 1000;
  std::vector<std::string> all_texts(std::string_view here);
  /// Throws RankLost if a process has gone. For the time in which nobody is in a call above, and
  /// none of the others can have come to its end.
  void check();

  /// The thread in a call above, or the next one to come there, throws ExchangeAborted.
  void abort() noexcept;
  /// The process that somebody waits for just now, or -1.
  int64_t awaited() const { return awaited_; }
  /// Sent and received since the connection.
  int64_t moved_bytes() const;

 private:
  class Connecting;
  struct Header {
    uint64_t number = 0;  // of the message, between these two in this direction
    uint64_t bytes = 0;   // that follow
  };
  struct Line {
    std::unique_ptr<PeerLink> link;
    Header out, in, expected;
    bool begun = false, checked = false;
  };
  Peers(PeerIdentity me, const PeerOptions& options);
  void begin(Line& line, std::span<const std::span<const std::byte>> out,
             std::span<const std::span<std::byte>> in);
  void check_header(int64_t process);
  /// True when all is done; else fills polled_.
  bool continue_all();
  void exchange_all(const Outgoing& out, const Incoming& in);
  [[noreturn]] void give_up();
  void wait(std::chrono::steady_clock::time_point since);
  [[noreturn]] void lose(int64_t process);
  void look_for_gone();
  /// Whose end the others only follow: `process` has ended as one does that has given up.
  int64_t find_first_gone(int64_t process);
  void close_all() noexcept;

  const PeerIdentity me_;
  const PeerOptions options_;
  std::string address_;
  std::stop_token stop_;
  UniqueFd wake_;  // an eventfd, for abort()
  std::vector<Line> lines_;
  std::atomic<bool> aborted_ = false;
  std::atomic<int64_t> awaited_ = -1;
  std::optional<RankLost> lost_;
  // Kept, so that an exchange allocates nothing once there was one like it.
  std::vector<std::span<const std::byte>> out_;
  std::vector<std::span<std::byte>> in_;
  std::vector<pollfd> polled_;
};

}  // namespace trainyard
