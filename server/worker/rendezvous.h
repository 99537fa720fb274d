// server/worker/rendezvous.h: connects the workers of an attempt's nodes. Each worker sends the
// daemon the address on which it listens, and polls until all have done so
// (docs/decisions/jobs-over-several-nodes.md).
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "server/worker/remote_run.h"
#include "src/base/result.h"
#include "src/runtime/peers.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {

struct RendezvousOptions {
  const RemoteOptions& options;  // of this worker
  const std::string& nonce;
  int64_t nodes = 1;
  int64_t ranks_each = 1;  // ranks of every node: one per GPU, or one for the CPU
};

/// Returns the connected peers. `limit` is how long to wait until all workers have registered with
/// the daemon; some may have to pull a dataset first. Errors: DEADLINE_EXCEEDED/PEERS_MISSING,
/// PEER_LISTENER_FAILED, those of Peers::connect(), and those of the daemon.
Result<std::shared_ptr<Peers>> connect_ranks(v1::WorkerService::Stub& stub,
                                             const RendezvousOptions& rendezvous,
                                             std::chrono::milliseconds limit,
                                             const std::stop_token& stop);

/// Returns this host's address on the route to `attach` (host:port), assuming that the other nodes
/// can reach it there too. UNAVAILABLE/PEER_LISTENER_FAILED.
Result<std::string> address_towards(const std::string& attach);

}  // namespace trainyard
