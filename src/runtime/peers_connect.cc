// src/runtime/peers_connect.cc: connects the processes of a job: the one with the larger index
// connects to the other's listener. Other connections to a listener are rejected and delay nobody.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/check.h"
#include "src/base/text.h"
#include "src/runtime/peers.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetryInterval{200};
constexpr std::chrono::seconds kHandshake{10};
constexpr int kConnectPollMs = 100;
constexpr int kBacklog = 128;
// Unknown connections that may be in a handshake at a time, in addition to the expected ones.
constexpr size_t kUnknownConnectionsMax = 16;

Status check_group(const PeerIdentity& me, const std::vector<PeerEndpoint>& all,
                   const PeerOptions& options) {
  const auto refuse = [](const std::string& message) {
    return make_error(ErrorCode::kInvalidArgument, "PEER_GROUP_INVALID", message);
  };
  if (me.count < 1 || options.ranks_each < 1 || me.count * options.ranks_each > kRanksMax) {
    return refuse("ranks: " + std::to_string(me.count) + " processes of " +
                  std::to_string(options.ranks_each) + " ranks, expected 1 to " +
                  std::to_string(kRanksMax) + " ranks in all");
  }
  if (me.index < 0 || me.index >= me.count) {
    return refuse("rank: " + std::to_string(me.index) + ", expected 0 to " +
                  std::to_string(me.count - 1));
  }
  if (std::ssize(all) != me.count) {
    return refuse("endpoints: " + std::to_string(all.size()) +
                  " of them, expected one for each of " + std::to_string(me.count) + " processes");
  }
  if (me.key.size() < kPeerKeyBytes) {
    return refuse("key: " + std::to_string(me.key.size()) + " bytes, expected at least " +
                  std::to_string(kPeerKeyBytes));
  }
  return {};
}

}  // namespace

Result<PeerListener> PeerListener::open(const std::string& address) {
  const auto refuse = [&](const std::string& what) {
    return make_error(ErrorCode::kUnavailable, "PEER_LISTENER_FAILED",
                      "cannot listen for the other processes of this job at " +
                          quoted_value(address) + ": " + what);
  };
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(address.c_str(), "0", &hints, &found); code != 0) {
    return refuse(std::string("a numeric address is expected: ") + ::gai_strerror(code));
  }
  const Handle<addrinfo, ::freeaddrinfo> local(found);
  PeerListener listener;
  listener.socket_.reset(
      ::socket(local->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (!listener.socket_ || ::bind(listener.socket_.get(), local->ai_addr, local->ai_addrlen) != 0 ||
      ::listen(listener.socket_.get(), kBacklog) != 0 ||
      ::getsockname(listener.socket_.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return refuse(std::strerror(errno));
  }
  const uint16_t port = bound.ss_family == AF_INET
                            ? reinterpret_cast<const sockaddr_in&>(bound).sin_port
                            : reinterpret_cast<const sockaddr_in6&>(bound).sin6_port;
  listener.endpoint_ = {address, ntohs(port)};
  return listener;
}

/// Runs until all processes are connected.
class Peers::Connecting {
 public:
  Connecting(Peers& peers, PeerListener listener, const std::vector<PeerEndpoint>& all)
      : peers_(peers), listener_(std::move(listener)), all_(all), next_try_(all.size()) {}

  Status run(const std::stop_token& stop) {
    const Steady::time_point end = Steady::now() + peers_.options_.connect_limit;
    while (!missing().empty()) {
      if (stop.stop_requested()) {
        return make_error(ErrorCode::kCancelled, "STOPPED",
                          "stopped before all ranks were connected");
      }
      if (Steady::now() >= end) return describe_missing();
      if (Status s = begin_connections(); !s.ok()) return s;
      wait();
      accept_all();
      if (Status s = shake_hands(); !s.ok()) return s;
    }
    return {};
  }

 private:
  struct Pending {
    std::unique_ptr<PeerLink> link;
    Steady::time_point end;
    int64_t to = -1;  // the process that this one connects to; -1: an accepted connection
  };

  std::vector<int64_t> missing() const {
    std::vector<int64_t> all;
    for (int64_t p = 0; p < peers_.count(); ++p) {
      if (p != peers_.index() && peers_.lines_[static_cast<size_t>(p)].link == nullptr)
        all.push_back(p);
    }
    return all;
  }

  Status begin_connections() {
    for (const int64_t p : missing()) {
      const auto at = static_cast<size_t>(p);
      const bool under_way =
          std::ranges::any_of(pending_, [&](const Pending& o) { return o.to == p; });
      if (p > peers_.index() || under_way || Steady::now() < next_try_[at]) continue;
      ASSIGN_OR_RETURN(auto link, PeerLink::begin_connect(peers_.me_, p, all_[at]));
      pending_.push_back({std::move(link), Steady::now() + kHandshake, p});
    }
    return {};
  }

  void wait() const {
    std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
    for (const Pending& p : pending_) polled.push_back({p.link->fd(), p.link->events(), 0});
    (void)::poll(polled.data(), polled.size(), kConnectPollMs);
  }

  void accept_all() {
    while (true) {
      UniqueFd socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) return;
      const auto came = [](const Pending& p) { return p.to < 0; };
      const size_t most = static_cast<size_t>(peers_.count()) + kUnknownConnectionsMax;
      if (std::ranges::count_if(pending_, came) >= static_cast<int64_t>(most)) {
        pending_.erase(std::ranges::find_if(pending_, came));  // drops the oldest one
      }
      pending_.push_back(
          {PeerLink::accepted(peers_.me_, std::move(socket)), Steady::now() + kHandshake, -1});
    }
  }

  Status shake_hands() {
    std::vector<Pending> still;
    for (Pending& p : pending_) {
      const PeerLink::Progress progress = p.link->shake_hands();
      if (progress == PeerLink::Progress::kDone) {
        // A second link has also proven the key: the process that made it has dropped the first
        // one.
        peers_.lines_[static_cast<size_t>(p.link->peer())].link = std::move(p.link);
      } else if (progress == PeerLink::Progress::kWaits && Steady::now() < p.end) {
        still.push_back(std::move(p));
      } else if (p.to < 0) {
        ++turned_away_;
      } else if (p.link->was_refused()) {
        return make_error(ErrorCode::kUnauthenticated, "PEER_KEY_REJECTED",
                          peers_.name_of(p.to) + " (" + p.link->address() +
                              ") rejected this process's key: it belongs to another attempt");
      } else {
        next_try_[static_cast<size_t>(p.to)] = Steady::now() + kRetryInterval;
      }
    }
    pending_ = std::move(still);
    return {};
  }

  Error describe_missing() const {
    std::string names;
    for (const int64_t p : missing()) {
      names += (names.empty() ? "" : ", ") + peers_.name_of(p) + " (" +
               all_[static_cast<size_t>(p)].address + ")";
    }
    std::string text = names + ": no connection within " +
                       std::to_string(peers_.options_.connect_limit.count() / 1000) +
                       " s; the nodes must reach each other's ports";
    if (turned_away_ > 0) {
      text += "; " + std::to_string(turned_away_) + " connections without the key were rejected";
    }
    return make_error(ErrorCode::kDeadlineExceeded, "PEERS_MISSING", text);
  }

  Peers& peers_;
  const PeerListener listener_;
  const std::vector<PeerEndpoint>& all_;
  std::vector<Steady::time_point> next_try_;
  std::vector<Pending> pending_;
  int64_t turned_away_ = 0;
};

Result<std::shared_ptr<Peers>> Peers::connect(PeerListener listener, PeerIdentity me,
                                              const std::vector<PeerEndpoint>& all,
                                              const PeerOptions& options,
                                              const std::stop_token& stop) {
  if (Status s = check_group(me, all, options); !s.ok()) return std::move(s).error();
  std::shared_ptr<Peers> peers(new Peers(std::move(me), options));
  peers->address_ = listener.endpoint().address;
  peers->stop_ = stop;
  if (Status s = Connecting(*peers, std::move(listener), all).run(stop); !s.ok()) {
    return std::move(s).error();
  }
  return peers;
}

}  // namespace trainyard
