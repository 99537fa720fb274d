// server/processes/task.h: the supervisor's data of a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/processes/output_log.h"
#include "server/processes/process.h"
#include "server/processes/supervisor.h"
#include "src/base/mutex.h"

namespace trainyard::server {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// A worker between spawn and end. Fields without a note are used only by the supervisor's thread.
struct Task : std::enable_shared_from_this<Task> {
  std::string id;
  std::string kind;
  bool outlives = false;  // it outlives the daemon
  std::vector<std::string> gpus;
  std::string nonce;
  v1::WorkerSandbox sandbox;
  std::shared_ptr<TaskOwner> owner;
  bool adopted = false;  // an earlier daemon started this process
  pid_t adopted_pid = 0;
  int64_t adopted_start_time = 0;
  bool begun = false;  // spawned, or an adoption was tried
  std::optional<Process> process;
  bool has_nonce = false;
  std::unique_ptr<OutputLog> output;
  bool output_open = false;
  int64_t kill_at_us = kNever;  // the time of SIGKILL, after SIGTERM
  bool terminated = false;      // SIGTERM was sent
  bool silent = false;
  int64_t late_us = kNever;
  bool late = false;

  // Only remote tasks (Supervisor::add_remote) use these members.
  bool is_remote = false;
  std::string secret_digest;
  int64_t lease_us = 0;
  int64_t nodes = 1;
  std::function<void(std::string why)> withdraw;
  bool withdrawn = false;
  bool logged_silent = false;
  bool has_remote_end = false;  // nothing more is to be done

  std::atomic<int64_t> heard_us{0};
  std::atomic<bool> connected{false};
  std::atomic<int64_t> stalled_ms{0};         // time without progress, set when it is too long
  std::atomic<bool> outcome_received{false};  // the worker has sent it, and the owner is storing it
  std::atomic<bool> outcome_taken{false};
  std::atomic<int64_t> outcome_us{0};  // when it was taken
  std::atomic<bool> version_skew{false};
  std::atomic<bool> measures{false};  // a measurement was requested from its worker

  Mutex mu;
  std::string nonce_digest TRAINYARD_GUARDED_BY(mu);  // empty: not enrolled yet
  std::string enrolling TRAINYARD_GUARDED_BY(mu);     // a digest that the owner is storing
  // These two have an entry per rank: the digest of the worker's credential (rank 0's is above),
  // and the address at which the other workers can connect to it, once it has registered.
  std::vector<std::string> rank_digests TRAINYARD_GUARDED_BY(mu);
  std::vector<v1::Endpoint> endpoints TRAINYARD_GUARDED_BY(mu);
  std::string rendezvous_key TRAINYARD_GUARDED_BY(mu);
  std::optional<TaskEnd> seen_end TRAINYARD_GUARDED_BY(mu);  // reported by the placement
  std::shared_ptr<CommandSink> sink TRAINYARD_GUARDED_BY(mu);
  bool attached TRAINYARD_GUARDED_BY(mu) = false;
  // The process has ended; calls of its worker are refused.
  bool over TRAINYARD_GUARDED_BY(mu) = false;
  // The reason, once a stop was requested.
  std::optional<std::string> stop TRAINYARD_GUARDED_BY(mu);
  int64_t stop_term_us TRAINYARD_GUARDED_BY(mu) = kNever;  // when SIGTERM is due
  int64_t stop_kill_us TRAINYARD_GUARDED_BY(mu) = kNever;
};

}  // namespace trainyard::server
