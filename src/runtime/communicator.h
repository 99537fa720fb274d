// src/runtime/communicator.h: the connection between the devices that train one job together
// ("ranks"). Each rank processes an equal part of every batch, and their gradients are averaged
// (src/ops/all_reduce.h).
//
// A backend creates a Communicator (Backend::connect()), and its exchange kernels use it. It also
// reports the progress of its rank, so that a waiting caller can name the rank that stopped first,
// and it can be aborted.
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
  std::string name;  // resource name, such as "devices/gpu-0"
  std::shared_ptr<Backend> backend;
};

/// These functions classify the ops that a communicator runs (src/ops/all_reduce.h, shards.h,
/// row_exchange.h). Ranks wait for each other in the ops that start an exchange.
inline bool exchanges_rows(std::string_view op_type) {  // starts and ends the exchange in one node
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

/// A rank waited for others that will not come: the exchange was aborted (Communicator::abort()).
struct ExchangeAborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A rank in another process has ended or no longer responds. what() names it.
struct RankLost : ExchangeAborted {
  RankLost(const std::string& message, int64_t first_of_process)
      : ExchangeAborted(message), rank(first_of_process) {}
  int64_t rank;  // the first rank of the lost process
};

/// One rank's end of the connection. All functions may be called from any thread while the rank
/// computes.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Returns the number of exchanges that this rank has started, and of those that have ended for
  /// it.
  virtual int64_t reached() const = 0;
  virtual int64_t ended() const = 0;
  /// Throws an error that has occurred between the devices and that no call has reported yet.
  virtual void check() const {}
  /// Ends all waiting for other ranks: waiting calls throw ExchangeAborted on a host, and give
  /// undefined results on a GPU. Afterwards the job can only be ended. Does not wait itself, not
  /// even for recordings that contain exchanges and have not been destroyed.
  virtual void abort() noexcept = 0;
  /// Returns the job's other processes, if there are any (peers.h). The ranks of each process
  /// follow those of the previous one.
  virtual Peers* peers() const { return nullptr; }
  /// Returns true if exchanges use the connections of peers(), on a rank's thread. Otherwise
  /// exchanges do not notice the end of another process, so the thread that waits for the ranks
  /// must call Peers::check().
  virtual bool sends_by_peers() const { return false; }
  /// Describes the connection for users, e.g. "NCCL 2.28.9 through eth0 (10.0.0.7)". Empty if there
  /// is nothing to describe.
  virtual std::string about() const { return {}; }
};

}  // namespace trainyard
