// Tests of the connections between the processes of a job: which peers are accepted, what is
// exchanged and in which order it is summed, and which process is named when one ends.
#include "src/runtime/peers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/shard.h"
#include "src/runtime/host/peer_communicator.h"
#include "src/runtime/host/thread_communicator.h"
#include "src/runtime/join.h"
#include "tests/engine/peers_support.h"
#include "tests/support/patience.h"
#include "tests/support/storm_relay.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::connect_peers;
using testing::kPeerKey;
using testing::on_each;

template <typename E, typename F>
std::string thrown(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing of the kind was thrown";
}

/// The tensors that one rank passes to an exchange, which overwrites them with the results.
template <typename T>
struct Tensors {
  std::vector<std::vector<T>> data, shards, rows;
  double factor = 1;  // factor for gathered rows
  std::vector<ExchangePart> parts() {
    std::vector<ExchangePart> all;
    for (size_t i = 0; i < data.size(); ++i) {
      all.push_back({.data = data[i].data(),
                     .count = std::ssize(data[i]),
                     .dtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64,
                     .shard = shards[i].data(),
                     .rows = rows[i].data(),
                     .factor = factor});
    }
    return all;
  }
};

template <typename T>
std::vector<Tensors<T>> make_tensors(const std::vector<int64_t>& sizes, int64_t ranks) {
  std::vector<Tensors<T>> all(static_cast<size_t>(ranks));
  uint32_t state = 7;
  const auto next = [&] {  // numbers of several magnitudes, so that the order of a sum matters
    state = state * 1664525 + 1013904223;
    return static_cast<T>(static_cast<int32_t>(state)) * (state % 8 < 4 ? T(1) : T(1e-5));
  };
  for (Tensors<T>& rank : all) {
    for (const int64_t size : sizes) {
      std::vector<T>& values = rank.data.emplace_back(static_cast<size_t>(size));
      for (T& v : values) v = next();
      const int64_t shard = kernels::shard_elements(size, ranks);
      rank.shards.emplace_back(static_cast<size_t>(shard), T(99));
      rank.rows.emplace_back(static_cast<size_t>(size * ranks), T(99));
    }
  }
  return all;
}

/// Runs the same exchange among threads of one process and among processes, and expects equal bits.
template <typename T>
void expect_the_bits_of_threads(Exchange exchange, const std::vector<int64_t>& sizes,
                                int64_t processes, int64_t ranks_each) {
  SCOPED_TRACE(std::to_string(processes) + " processes of " + std::to_string(ranks_each));
  const int64_t ranks = processes * ranks_each;
  auto expected = make_tensors<T>(sizes, ranks);
  for (Tensors<T>& rank : expected) rank.factor = sizes.size() % 2 == 0 ? 1 : 0.3;
  auto got = expected;
  const auto threads = ThreadCommunicator::make(static_cast<size_t>(ranks));
  on_each(ranks, [&](int64_t r) {
    const auto parts = expected[static_cast<size_t>(r)].parts();
    threads[static_cast<size_t>(r)]->run(exchange, parts);
  });
  const auto peers = connect_peers(processes, {.ranks_each = ranks_each});
  std::vector<std::unique_ptr<PeerCommunicator>> all;
  for (const auto& p : peers) {
    for (auto& c : PeerCommunicator::make(static_cast<size_t>(ranks_each), p)) {
      all.push_back(std::move(c));
    }
  }
  on_each(ranks, [&](int64_t r) {
    const auto parts = got[static_cast<size_t>(r)].parts();
    all[static_cast<size_t>(r)]->plan(exchange, parts);
    all[static_cast<size_t>(r)]->run(exchange, parts);
  });
  for (size_t r = 0; r < got.size(); ++r) {
    EXPECT_TRUE(got[r].data == expected[r].data) << "rank " << r;
    EXPECT_TRUE(got[r].shards == expected[r].shards) << "rank " << r;
    EXPECT_TRUE(got[r].rows == expected[r].rows) << "rank " << r;
    EXPECT_EQ(all[r]->reached(), 1);
    EXPECT_EQ(all[r]->ended(), 1);
  }
}

class Exchanges : public ::testing::TestWithParam<Exchange> {};

TEST_P(Exchanges, SmallTensorsAndRemainders) {
  for (const auto& [processes, each] : {std::pair(2, 1), {3, 1}, {4, 1}, {2, 2}, {1, 2}}) {
    expect_the_bits_of_threads<float>(GetParam(), {1, 5, 17, 1, 1000, 33}, processes, each);
    expect_the_bits_of_threads<double>(GetParam(), {3, 1, 64, 129}, processes, each);
  }
}

TEST_P(Exchanges, TensorsOfSeveralRounds) {
  const std::vector<int64_t> sizes{7, 2 * kRoundBytes / 4 + 1234567, 100, kRoundBytes / 4, 3};
  expect_the_bits_of_threads<float>(GetParam(), sizes, 3, 1);
  expect_the_bits_of_threads<float>(GetParam(), sizes, 2, 2);
}

INSTANTIATE_TEST_SUITE_P(All, Exchanges,
                         ::testing::Values(Exchange::kAllReduce, Exchange::kReduceScatter,
                                           Exchange::kAllGather, Exchange::kGatherRows));

// A ring all-reduce sends 2 (N - 1) / N of a tensor's bytes from each process; reduce-scatter and
// all-gather, its two halves, send half of that each.
TEST(Peers, BytesSentAreThoseOfARing) {
  // elements of 4 bytes, in several rounds
  constexpr int64_t kElements = 3 * kRoundBytes / 4 / 64 * 64;
  for (const int64_t processes : {2, 4}) {
    const double of_tensor =
        4.0 * kElements * static_cast<double>(processes - 1) / static_cast<double>(processes);
    for (const auto& [exchange, times] : {std::pair(Exchange::kAllReduce, 2),
                                          {Exchange::kReduceScatter, 1},
                                          {Exchange::kAllGather, 1}}) {
      auto tensors = make_tensors<float>({kElements}, processes);
      const auto peers = connect_peers(processes);
      on_each(processes, [&](int64_t p) {
        const auto at = static_cast<size_t>(p);
        const auto mine = std::move(PeerCommunicator::make(1, peers[at]).front());
        const auto parts = tensors[at].parts();
        mine->plan(exchange, parts);
        mine->run(exchange, parts);
        // The bytes are those of both directions, plus a few before each message.
        EXPECT_NEAR(static_cast<double>(peers[at]->moved_bytes()), 2 * times * of_tensor, 1000);
      });
    }
  }
}

TEST(Peers, TheAnswerOfOneReachesAll) {
  const auto peers = connect_peers(4);
  on_each(4, [&](int64_t p) {
    Peers& mine = *peers[static_cast<size_t>(p)];
    EXPECT_EQ(mine.of_first("process " + std::to_string(p)), "process 0");
    EXPECT_EQ(mine.of_first(""), "");
    EXPECT_EQ(mine.of_first(std::string(10'000, 'x')), std::string(Peers::kTextBytesMax, 'x'));
    EXPECT_FALSE(mine.any(false));
    EXPECT_TRUE(mine.any(p == 2));
    std::vector<int32_t> all(4);
    all[static_cast<size_t>(p)] = static_cast<int32_t>(p * p);
    mine.all_gather(std::as_writable_bytes(std::span(all)));
    EXPECT_EQ(all, (std::vector<int32_t>{0, 1, 4, 9}));
    int64_t value = p;
    mine.broadcast(3, std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ(value, 3);
  });
}

TEST(Peers, MessagesOfEachReachAll) {
  const auto peers = connect_peers(3, {.ranks_each = 2});
  on_each(3, [&](int64_t p) {
    Peers& mine = *peers[static_cast<size_t>(p)];
    EXPECT_EQ(mine.address(), "127.0.0.1");
    const std::string texts[] = {"one", "", std::string(5000, 'x')};
    EXPECT_EQ(mine.all_texts(texts[p]),
              (std::vector<std::string>{"one", "", std::string(Peers::kTextOfEachMax, 'x')}));
  });
}

/// Returns the common verdict of three processes that report these statuses.
Status agreed(const std::vector<Status>& said) {
  const auto peers = connect_peers(3, {.ranks_each = 2});
  std::vector<Status> heard(3);
  on_each(3, [&](int64_t p) {
    const auto at = static_cast<size_t>(p);
    heard[at] = agree(*peers[at], said[at]);
  });
  for (const Status& s : heard) {
    EXPECT_EQ(s.ok(), heard[0].ok());
    if (s.ok()) continue;
    EXPECT_EQ(s.error().message, heard[0].error().message);
    EXPECT_EQ(s.error().reason, heard[0].error().reason);
    EXPECT_EQ(s.error().code, heard[0].error().code);
  }
  return heard[0];
}

// The most informative error wins: most processes only notice that another one is missing.
TEST(Peers, TheyAgreeOnTheMostInformativeError) {
  using enum ErrorCode;
  const Status good;
  const Status late = make_error(kDeadlineExceeded, "RANKS_MISSING", "it has waited");
  const Status lost = make_error(kAborted, "RANKS_UNCONNECTED", "another has failed");
  const Status broken = make_error(kFailedPrecondition, "NCCL_MISSING", "there is none:\nnone");
  const Status stopped = make_error(kCancelled, "STOPPED", "it was stopped");
  EXPECT_TRUE(agreed({good, good, good}).ok());
  EXPECT_EQ(agreed({late, lost, broken}).error().message, "ranks 4 to 5: there is none:\nnone");
  EXPECT_EQ(agreed({late, lost, broken}).error().reason, "NCCL_MISSING");
  EXPECT_EQ(agreed({late, lost, broken}).error().code, kFailedPrecondition);
  EXPECT_EQ(agreed({broken, stopped, good}).error().message, "ranks 2 to 3: it was stopped");
  EXPECT_EQ(agreed({good, late, lost}).error().message, "ranks 2 to 3: it has waited");
}

TEST(Peers, AFaultOfOneBeforeConnectingEndsAll) {
  const auto peers = connect_peers(2);
  on_each(2, [&](int64_t p) {
    const auto open = [&]() -> Result<std::vector<RankDevice>> {
      if (p == 1) throw std::runtime_error("the device is broken");
      std::vector<RankDevice> devices;
      devices.push_back({"devices/cpu", make_cpu_backend(1)});
      return devices;
    };
    if (p == 1) {
      EXPECT_EQ(thrown<std::runtime_error>([&] { (void)join_devices(peers[1], open); }),
                "the device is broken");
      return;
    }
    const auto joined = join_devices(peers[0], open);
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().reason, "RANK_FAULT");
    EXPECT_EQ(joined.error().message, "rank 1: the device is broken");
  });
}

// Nobody reads between exchanges. check() must not consume data that was sent in advance, and
// reports only a closed connection.
TEST(Peers, APollNoticesOnlyAnEnd) {
  auto peers = connect_peers(2);
  std::atomic<bool> sent{false}, looked{false};
  on_each(2, [&](int64_t p) {
    Peers& mine = *peers[static_cast<size_t>(p)];
    int64_t value = 7;
    if (p == 1) {
      mine.broadcast(1, std::as_writable_bytes(std::span(&value, 1)));
      sent = true;
      while (!looked) std::this_thread::sleep_for(milliseconds(1));
      peers[1].reset();
      return;
    }
    EXPECT_NO_THROW(mine.check());
    while (!sent) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_NO_THROW(mine.check());
    value = 0;
    mine.broadcast(1, std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ(value, 7);
    looked = true;
    EXPECT_EQ(thrown<RankLost>([&] {
                while (true) {
                  mine.check();
                  std::this_thread::sleep_for(milliseconds(1));
                }
              }),
              "rank 1 (127.0.0.1) has aborted the job");
    EXPECT_NE(thrown<RankLost>([&] { (void)mine.any(false); }).find("has aborted the job"),
              std::string::npos)
        << "it stays lost";
  });
}

TEST(Peers, AnotherKeyIsRefused) {
  auto first = PeerListener::open("127.0.0.1").value();
  auto second = PeerListener::open("127.0.0.1").value();
  const std::vector<PeerEndpoint> all{first.endpoint(), second.endpoint()};
  const PeerOptions options{.connect_limit = promised(milliseconds(700))};
  on_each(2, [&](int64_t p) {
    const std::string key = p == 0 ? kPeerKey : std::string(32, 'x');
    auto made =
        Peers::connect(p == 0 ? std::move(first) : std::move(second), {p, 2, key}, all, options);
    ASSERT_FALSE(made.ok());
    if (p == 1) {
      EXPECT_EQ(made.error().reason, "PEER_KEY_REJECTED");
      EXPECT_NE(made.error().message.find("rank 0 (127.0.0.1)"), std::string::npos)
          << made.error().message;
    } else {
      EXPECT_EQ(made.error().reason, "PEERS_MISSING");
      EXPECT_NE(made.error().message.find("rank 1 (127.0.0.1): no connection"), std::string::npos)
          << made.error().message;
      EXPECT_NE(made.error().message.find("without the key were rejected"), std::string::npos)
          << made.error().message;
    }
  });
}

int connect_to(const PeerEndpoint& endpoint) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(endpoint.port));
  ::inet_pton(AF_INET, endpoint.address.c_str(), &address.sin_addr);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// Cluster ports get scanned; connections without the key must not delay the rendezvous.
TEST(Peers, OtherConnectionsDoNotDelayThem) {
  std::vector<PeerListener> listeners;
  std::vector<PeerEndpoint> endpoints;
  for (int p = 0; p < 3; ++p) {
    listeners.push_back(PeerListener::open("127.0.0.1").value());
    endpoints.push_back(listeners.back().endpoint());
  }
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.emplace_back(connect_to(endpoints[static_cast<size_t>(i % 2)]));
    const std::string text = i % 3 == 0 ? "GET / HTTP/1.1\r\n\r\n" : "";
    (void)::send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  const auto begin = steady_clock::now();
  on_each(3, [&](int64_t p) {
    auto made =
        Peers::connect(std::move(listeners[static_cast<size_t>(p)]), {p, 3, kPeerKey}, endpoints);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE((*made)->any(p == 1));
  });
  EXPECT_LT(steady_clock::now() - begin, promised(milliseconds(5000)));
}

TEST(Peers, AMissingProcessIsNamed) {
  auto first = PeerListener::open("127.0.0.1").value();
  auto last = PeerListener::open("127.0.0.1").value();
  const std::vector<PeerEndpoint> all{first.endpoint(), {"127.0.0.1", 1}, last.endpoint()};
  const PeerOptions options{.connect_limit = promised(milliseconds(600))};
  on_each(2, [&](int64_t p) {
    auto made = Peers::connect(p == 0 ? std::move(first) : std::move(last), {p * 2, 3, kPeerKey},
                               all, options);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().reason, "PEERS_MISSING");
    EXPECT_TRUE(made.error().message.starts_with("rank 1 (127.0.0.1): no connection"))
        << made.error().message;
  });
}

TEST(Peers, AnInvalidGroupIsRefusedByField) {
  const auto reason = [](PeerIdentity me, std::vector<PeerEndpoint> all, PeerOptions options) {
    const auto made =
        Peers::connect(PeerListener::open("127.0.0.1").value(), std::move(me), all, options);
    return made.ok() ? "" : made.error().message;
  };
  const PeerEndpoint any{"127.0.0.1", 9};
  EXPECT_EQ(reason({0, 65, kPeerKey}, {}, {}),
            "ranks: 65 processes of 1 ranks, expected 1 to 64 ranks in all");
  EXPECT_EQ(reason({2, 2, kPeerKey}, {any, any}, {}), "rank: 2, expected 0 to 1");
  EXPECT_EQ(reason({0, 2, kPeerKey}, {any}, {}),
            "endpoints: 1 of them, expected one for each of 2 processes");
  EXPECT_EQ(reason({0, 2, "short"}, {any, any}, {}), "key: 5 bytes, expected at least 32");
  EXPECT_EQ(reason({1, 2, kPeerKey}, {{"node-1", 9}, any}, {}),
            "endpoints[0]: node-1 port 9 is not a numeric address with a port from 1 to 65535");
}

TEST(Peers, AProcessThatGivesUpIsNamedToAll) {
  auto peers = connect_peers(4);
  on_each(4, [&](int64_t p) {
    auto& mine = peers[static_cast<size_t>(p)];
    (void)mine->any(false);
    if (p == 2) return mine.reset();
    const std::string text = thrown<RankLost>([&] { (void)mine->any(false); });
    EXPECT_EQ(text, "rank 2 (127.0.0.1) has aborted the job") << "rank " << p;
    mine.reset();
  });
}

TEST(Peers, AProcessThatDoesNotRespondIsNamed) {
  const auto peers = connect_peers(3, {.silence_limit = milliseconds(1000)});
  std::latch named(2);
  on_each(3, [&](int64_t p) {
    Peers& mine = *peers[static_cast<size_t>(p)];
    if (p == 1) return named.wait();  // process 1 is connected, but silent
    const std::string text = thrown<RankLost>([&] { (void)mine.any(false); });
    // The other waiting process may give up first.
    EXPECT_TRUE(text.find("rank 1 has neither sent nor received data") == 0 ||
                text.find("has aborted the job") != std::string::npos)
        << text;
    named.count_down();
  });
}

TEST(Peers, AProcessThatDoesNotReadIsNamedByTheSender) {
  const auto peers = connect_peers(2, {.silence_limit = milliseconds(1000)});
  const std::vector<std::byte> data(size_t{64} << 20);  // more than sockets buffer
  std::latch named(1);
  on_each(2, [&](int64_t p) {
    if (p == 1) return named.wait();
    const std::string text = thrown<RankLost>([&] {
      peers[0]->exchange({{}, {std::as_bytes(std::span(data))}}, {{}, {}});
    });
    EXPECT_EQ(text, "rank 1 has neither sent nor received data for 1 s");
    named.count_down();
  });
}

/// A bad network between each two processes, of which the one with the larger index connects to the
/// other.
class StormyPeers {
 public:
  StormyPeers(int64_t processes, const testing::Storm& storm, const PeerOptions& options) {
    peers = connect_peers(processes, options, [&](int64_t from, int64_t to, PeerEndpoint endpoint) {
      if (from < to) return endpoint;
      testing::Storm theirs = storm;
      theirs.seed = storm.seed * 31 + static_cast<uint64_t>(from * processes + to);
      auto relay = std::make_unique<testing::StormRelay>(endpoint.port, theirs);
      endpoint.port = relay->port();
      const std::lock_guard lock(mu_);
      relays[{from, to}] = std::move(relay);
      return endpoint;
    });
  }
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<testing::StormRelay>> relays;
  std::vector<std::shared_ptr<Peers>> peers;

 private:
  std::mutex mu_;
};

/// Runs exchanges until a rank is lost; the data that arrived before must be correct.
std::string exchange_until_lost(Peers& mine, int64_t count, int rounds) {
  std::vector<std::byte> all(static_cast<size_t>(count * 3000));
  return thrown<RankLost>([&] {
    for (int round = 0; round < rounds; ++round) {
      std::ranges::fill(std::span(all).subspan(static_cast<size_t>(mine.index() * 3000), 3000),
                        static_cast<std::byte>(mine.index() * 50 + round % 50));
      mine.all_gather(all);
      for (int64_t p = 0; p < count; ++p) {
        for (const size_t at : {p * 3000, p * 3000 + 2999}) {
          ASSERT_EQ(all.at(at), static_cast<std::byte>(p * 50 + round % 50)) << "round " << round;
        }
      }
    }
  });
}

// A connection is silent in one direction. The test catches a process that waits forever because
// its own bytes still leave, or because the other end has noticed nothing.
TEST(Peers, ASilentDirectionEndsAllAndNamesARank) {
  using Way = testing::StormRelay::Way;
  for (const auto& ways : {std::vector{Way::kThere}, {Way::kBack}, {Way::kThere, Way::kBack}}) {
    StormyPeers stormy(3, {.delay = milliseconds(2)}, {.silence_limit = milliseconds(1500)});
    std::atomic<int> begun{0};
    on_each(3, [&](int64_t p) {
      Peers& mine = *stormy.peers[static_cast<size_t>(p)];
      (void)mine.any(false);
      if (++begun == 3) {
        for (const Way way : ways) stormy.relays.at({2, 0})->silence(way);
      }
      const auto begin = steady_clock::now();
      const std::string text = exchange_until_lost(mine, 3, 1'000'000);
      EXPECT_TRUE(text.find("has neither sent nor received data for 1 s") != std::string::npos ||
                  text.find("has aborted the job") != std::string::npos)
          << "rank " << p << ": " << text;
      EXPECT_TRUE(text.starts_with("rank ")) << text;
      EXPECT_LT(steady_clock::now() - begin, patience()) << "rank " << p;
      stormy.peers[static_cast<size_t>(p)].reset();
    });
  }
}

TEST(Peers, AResetAtAnyByteEndsAllWithoutWrongData) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StormyPeers stormy(3, {.seed = seed, .delay = milliseconds(1)}, {});
    std::atomic<bool> goes_on{true};
    std::jthread breaker([&] {  // breaks the connection in the middle of a message
      while (goes_on && stormy.relays.at({2, 1})->bytes() < static_cast<int64_t>(seed * 20'011)) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      stormy.relays.at({2, 1})->reset();
    });
    on_each(3, [&](int64_t p) {
      const std::string text =
          exchange_until_lost(*stormy.peers[static_cast<size_t>(p)], 3, 1'000'000);
      EXPECT_TRUE(text.starts_with("rank ")) << "rank " << p << ": " << text;
      stormy.peers[static_cast<size_t>(p)].reset();
    });
    goes_on = false;
  }
}

TEST(Peers, AnAbortWakesWhoeverWaits) {
  const auto peers = connect_peers(2);
  std::jthread later([&] {
    while (peers[0]->awaited() < 0) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(peers[0]->awaited(), 1);
    peers[0]->abort();
  });
  EXPECT_EQ(thrown<ExchangeAborted>([&] { (void)peers[0]->any(false); }),
            "the exchange was aborted");
}

TEST(Peers, DifferentSizesAreAFaultWithoutAllocation) {
  const auto peers = connect_peers(2);
  on_each(2, [&](int64_t p) {
    std::vector<std::byte> all(p == 0 ? 2000 : 4000);
    const std::string text =
        thrown<std::exception>([&] { peers[static_cast<size_t>(p)]->all_gather(all); });
    if (p == 0) {
      EXPECT_NE(text.find("rank 1 sends message 1 of 2000 bytes where number 1 of 1000 is due"),
                std::string::npos)
          << text;
      peers[0]->abort();
      (void)thrown<ExchangeAborted>([&] { (void)peers[0]->any(false); });
    } else {
      EXPECT_NE(text, "nothing of the kind was thrown");
    }
  });
}

}  // namespace
}  // namespace trainyard
