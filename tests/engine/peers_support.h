// tests/engine/peers_support.h: threads of the test that act as the processes of one job, connected
// as processes are.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "src/runtime/peers.h"

namespace trainyard::testing {

inline const std::string kPeerKey(32, 'k');

/// Calls work(process) on a thread for each process, and waits for all.
void on_each(int64_t processes, const std::function<void(int64_t)>& work);

/// Returns the endpoint at which process `from` reaches process `to`, which listens at `endpoint`.
using SeenAs = std::function<PeerEndpoint(int64_t from, int64_t to, PeerEndpoint endpoint)>;

/// Connects all processes, over loopback or through the relays that `seen_as` returns.
std::vector<std::shared_ptr<Peers>> connect_peers(int64_t processes,
                                                  const PeerOptions& options = {},
                                                  const SeenAs& seen_as = {},
                                                  const std::vector<std::stop_source>& stops = {});

/// Returns the CPU devices of one process's ranks.
std::vector<RankDevice> joined_devices(const std::shared_ptr<Peers>& peers);

}  // namespace trainyard::testing
