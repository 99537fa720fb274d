// src/runtime/peers.h: connects the processes that train one job together, on one or several hosts,
// each with the same number of ranks (docs/decisions/jobs-over-several-nodes.md).
//
// Every pair of processes is connected (peer_link.h) before the first step. All processes make the
// same calls in the same order; each call knows how many bytes it expects, and a message of another
// size fails a check. The end of one process ends the whole job: any process that waits for it,
// then or later, throws RankLost.
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

/// A listening socket at which the other processes reach this one.
class PeerListener {
 public:
  /// Listens at a free port of a numeric address of this host. UNAVAILABLE/PEER_LISTENER_FAILED.
  static Result<PeerListener> open(const std::string& address);
  const PeerEndpoint& endpoint() const { return endpoint_; }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  PeerEndpoint endpoint_;
};

struct PeerOptions {
  int64_t ranks_each = 1;                           // number of ranks of every process
  std::chrono::milliseconds connect_limit{60'000};  // time until all processes must be connected
  // Time without any data after which another process is lost. It is less than the daemon's own
  // limit for workers without progress (stall_timeout_seconds), since the daemon does not know
  // which rank the others wait for.
  std::chrono::milliseconds silence_limit{480'000};
};

/// Not thread-safe, except abort() and awaited().
class Peers {
 public:
  /// Connects to all other processes. `all` has the endpoint of each process, this one included.
  /// Errors: INVALID_ARGUMENT/PEER_ENDPOINT_INVALID, PEER_GROUP_INVALID;
  /// UNAUTHENTICATED/PEER_KEY_REJECTED if another process has another key;
  /// DEADLINE_EXCEEDED/PEERS_MISSING, with the names of the missing ones; CANCELLED/STOPPED.
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
  /// Returns the address at which the other processes reach this one.
  const std::string& address() const { return address_; }
  /// Returns the limit given to connect(); it also applies to other setup that the processes do
  /// together.
  std::chrono::milliseconds connect_limit() const { return options_.connect_limit; }
  const std::stop_token& stop() const { return stop_; }
  /// Returns text such as "rank 2" or "ranks 4 to 7".
  std::string name_of(int64_t process) const;

  // Indexed by process; this process's own entry is empty.
  using Outgoing = std::vector<std::vector<std::span<const std::byte>>>;
  using Incoming = std::vector<std::vector<std::span<std::byte>>>;
  /// Sends to and receives from all processes concurrently. Throws RankLost, or ExchangeAborted
  /// after abort().
  void exchange(const Outgoing& out, const Incoming& in);

  /// `all` consists of a part of equal size per process; the caller fills in this process's part.
  void all_gather(std::span<std::byte> all);
  /// Copies the bytes of process `from` to all processes.
  void broadcast(int64_t from, std::span<std::byte> bytes);
  static constexpr size_t kTextBytesMax = 4096;
  /// Returns, in every process, the text that process 0 passed, truncated to kTextBytesMax bytes.
  std::string of_first(std::string_view text);
  /// Returns whether `here` is true in any process.
  bool any(bool here);
  static constexpr size_t kTextOfEachMax = 1000;
  /// Returns the texts of all processes, each truncated to kTextOfEachMax bytes.
  std::vector<std::string> all_texts(std::string_view here);
  /// Throws RankLost if a process has ended. Must be called only between the calls above, and
  /// only while no process can have reached its regular end.
  void check();

  /// Makes the current or else the next call to a function above throw ExchangeAborted.
  void abort() noexcept;
  /// Returns the process that a call currently waits for, or -1.
  int64_t awaited() const { return awaited_; }
  /// Returns the bytes sent and received since the connection was made.
  int64_t moved_bytes() const;

 private:
  class Connecting;
  struct Header {
    uint64_t number = 0;  // sequence number of the message in this direction of the connection
    uint64_t bytes = 0;   // bytes that follow the header
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
  /// Returns true if all transfers are complete; otherwise fills polled_ for wait().
  bool continue_all();
  void exchange_all(const Outgoing& out, const Incoming& in);
  [[noreturn]] void give_up();
  void wait(std::chrono::steady_clock::time_point since);
  [[noreturn]] void lose(int64_t process);
  void check_for_ended();
  /// Finds the process whose end caused the end of `process`, which has closed its connection in an
  /// orderly way (as a process that gives up does).
  int64_t find_first_ended(int64_t process);
  void close_all() noexcept;

  const PeerIdentity me_;
  const PeerOptions options_;
  std::string address_;
  std::stop_token stop_;
  UniqueFd wake_;  // an eventfd by which abort() wakes a waiting thread
  std::vector<Line> lines_;
  std::atomic<bool> aborted_ = false;
  std::atomic<int64_t> awaited_ = -1;
  int64_t first_unfinished_ = -1;  // the first process whose transfer is not complete
  std::optional<RankLost> lost_;
  // Kept, so that an exchange allocates nothing if a similar one came before it.
  std::vector<std::span<const std::byte>> out_;
  std::vector<std::span<std::byte>> in_;
  std::vector<pollfd> polled_;
};

}  // namespace trainyard
