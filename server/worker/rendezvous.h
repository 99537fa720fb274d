// server/worker/rendezvous.h: how the workers of an attempt's nodes find each other: each tells the
// daemon where it is listened for, and asks until all have come (docs/decisions/0105).
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "server/worker/elsewhere.h"
#include "src/base/result.h"
#include "src/runtime/peers.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {

struct MeetingPlace {
  const ElsewhereOptions& options;  // of this worker
  const std::string& nonce;
  int64_t nodes = 1;
  int64_t ranks_each = 1;  // of every node: its GPUs, or its CPU
};

/// All connected. `limit`: until all have come, which may have a dataset to
/// pull before. DEADLINE_EXCEEDED/PEERS_MISSING, PEER_LISTENER, what Peers::connect() says, and
/// what the daemon says.
Result<std::shared_ptr<Peers>> meet_ranks(v1::WorkerService::Stub& stub, const MeetingPlace& place,
                                          std::chrono::milliseconds limit,
                                          const std::stop_token& stop);

/// This host's address on the way to `host:port`: that by which the others may reach it, too.
/// UNAVAILABLE/PEER_LISTENER.
Result<std::string> address_towards(const std::string& attach);

}  // namespace trainyard
