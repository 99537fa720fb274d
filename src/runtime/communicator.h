// src/runtime/communicator.h: what connects the devices that train one job together ("ranks"): each
// takes an equal part of every batch, and their gradients become one (src/ops/all_reduce.h).
//
// A backend makes it (Backend::connect) and its kernels of exchanges use it. Seen from outside it
// tells how far its rank has come, so that somebody who waits can name the rank that stopped first,
// and it can be given up.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trainyard {

class Backend;
class Peers;

inline constexpr int64_t kRanksMax = 64;

/// One of the devices of a job.
struct RankDevice {
  std::string name;  // "devices/gpu-0"
  std::shared_ptr<Backend> backend;
};

/// The ops that a communicator runs (src/ops/all_reduce.h, shards.h, row_exchange.h). Ranks meet in
/// those that start an exchange.
inline bool exchanges_rows(std::string_view op_type) {  // and ends it, in one node
  return op_type == "GatherRows" || op_type == "ScatterRows";
}
inline bool starts_exchange(std::string_view op_type) {
  return exchanges_rows(op_type) || op_type == "AllReduceStart" ||
         op_type == "ReduceScatterStart" || op_type == "AllGatherStart" ||
         op_type == "GatherShardsStart";
}
inline bool is_exchange(std::string_view op_type) {
  return starts_exchange(op_type) || op_type == "AllReduceDone" || op_type == "ReduceScatterDone" ||
         op_type == "AllGatherDone" || op_type == "GatherShardsDone";
}

/// A rank waited for others that will not come: the exchange was given up (Communicator::abort).
struct ExchangeAborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A rank in another process has gone, or says nothing any more. what() names it.
struct RankLost : ExchangeAborted {
  RankLost(const std::string& message, int64_t first_of_process)
      : ExchangeAborted(message), rank(first_of_process) {}
  int64_t rank;  // the first of that process
};

/// One rank's end of it. Everything here may be called from any thread, while the rank computes.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Exchanges that this rank has come to, and that have ended for it, since it was connected.
  virtual int64_t reached() const = 0;
  virtual int64_t ended() const = 0;
  /// Throws what has gone wrong between the devices and has not been told by a call.
  virtual void check() const {}
  /// Nobody waits for another rank any more: what waits ends, with ExchangeAborted on a host, with
  /// undefined results on a GPU. Only ending the job is left then.
  virtual void abort() noexcept = 0;
  /// The job's other processes, if it has some (peers.h): the ranks of each follow those of the
  /// process before.
  virtual Peers* peers() const { return nullptr; }
  /// True where exchanges are sent by peers(), on a rank's thread. Elsewhere nobody talks to them
  /// during an exchange, and whoever waits for the ranks looks after them (Peers::check()).
  virtual bool sends_by_peers() const { return false; }
  /// By what the ranks are connected, for people: "NCCL 2.28.9 through eth0 (10.0.0.7)". Empty
  /// where there is nothing to tell.
  virtual std::string about() const { return {}; }
};

}  // namespace trainyard
