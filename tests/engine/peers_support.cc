#include "tests/engine/peers_support.h"

#include <gtest/gtest.h>

#include <thread>

#include "src/runtime/join.h"

namespace trainyard::testing {

void on_each(int64_t processes, const std::function<void(int64_t)>& work) {
  std::vector<std::jthread> threads;
  for (int64_t p = 0; p < processes; ++p) threads.emplace_back([&work, p] { work(p); });
}

std::vector<std::shared_ptr<Peers>> connect_peers(int64_t processes, const PeerOptions& options,
                                                  const SeenAs& seen_as,
                                                  const std::vector<std::stop_source>& stops) {
  std::vector<PeerListener> listeners;
  std::vector<PeerEndpoint> endpoints;
  for (int64_t p = 0; p < processes; ++p) {
    listeners.push_back(PeerListener::open("127.0.0.1").value());
    endpoints.push_back(listeners.back().endpoint());
  }
  std::vector<std::shared_ptr<Peers>> all(static_cast<size_t>(processes));
  on_each(processes, [&](int64_t p) {
    const auto at = static_cast<size_t>(p);
    std::vector<PeerEndpoint> seen = endpoints;
    for (int64_t to = 0; seen_as && to < processes; ++to) {
      PeerEndpoint& endpoint = seen[static_cast<size_t>(to)];
      if (to != p) endpoint = seen_as(p, to, endpoint);
    }
    const std::stop_token stop = stops.empty() ? std::stop_token() : stops[at].get_token();
    auto made =
        Peers::connect(std::move(listeners[at]), {p, processes, kPeerKey}, seen, options, stop);
    if (made.ok()) {
      all[at] = *made;
    } else {
      ADD_FAILURE() << made.error().message;
    }
  });
  return all;
}

std::vector<RankDevice> joined_devices(const std::shared_ptr<Peers>& peers) {
  return join_devices(peers,
                      [&]() -> Result<std::vector<RankDevice>> {
                        std::vector<RankDevice> devices;
                        for (int64_t r = 0; r < peers->ranks_each(); ++r) {
                          devices.push_back({"devices/cpu", make_cpu_backend(1)});
                        }
                        return devices;
                      })
      .value();
}

}  // namespace trainyard::testing
