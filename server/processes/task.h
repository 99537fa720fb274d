// server/processes/task.h: what the supervisor knows of a task.
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

/// A worker between spawn and end. Fields without a note belong to the supervisor's thread.
struct Task : std::enable_shared_from_this<Task> {
  std::string id;
  std::string kind;
  bool outlives = false;  // the daemon
  std::vector<std::string> gpus;
  std::string nonce;
  std::shared_ptr<TaskOwner> owner;
  bool adopted = false;  // an earlier daemon started this process:
  pid_t adopted_pid = 0;
  int64_t adopted_start_time = 0;
  bool begun = false;  // spawned, or looked for
  std::optional<Process> process;
  bool has_nonce = false;
  std::unique_ptr<OutputLog> output;
  bool output_open = false;
  int64_t kill_at_us = kNever;  // the ladder's next step ...
  bool terminated = false;      // ... TERM was sent, KILL is next
  bool silent = false;
  int64_t late_us = kNever;
  bool late = false;

  // Without a process of ours (Supervisor::expect):
  bool elsewhere = false;
  std::string secret_digest;
  int64_t lease_us = 0;
  int64_t nodes = 1;
  std::function<void(std::string why)> withdraw;
  bool withdrawn = false;
  bool told_silent = false;
  bool ended_away = false;  // nothing more is due

  std::atomic<int64_t> heard_us{0};
  std::atomic<bool> connected{false};
  std::atomic<int64_t> stalled_ms{0};     // without progress, once that is too long
  std::atomic<bool> outcome_told{false};  // by the worker; the owner is about to store it
  std::atomic<bool> outcome_taken{false};
  std::atomic<int64_t> outcome_us{0};  // when it was
  std::atomic<bool> version_skew{false};
  std::atomic<bool> measures{false};  // its worker was asked to, behind its outcome

  Mutex mu;
  std::string nonce_digest TRAINYARD_GUARDED_BY(mu);  // empty: it has not enrolled yet
  std::string enrolling TRAINYARD_GUARDED_BY(mu);     // a digest that is being recorded
  // Of the workers of all nodes, by rank: digests of their credentials (rank 0's is above), and
  // where they are listened for by the others, once they have come.
  std::vector<std::string> rank_digests TRAINYARD_GUARDED_BY(mu);
  std::vector<v1::Endpoint> endpoints TRAINYARD_GUARDED_BY(mu);
  std::string meeting_key TRAINYARD_GUARDED_BY(mu);
  std::optional<TaskEnd> seen_end TRAINYARD_GUARDED_BY(mu);  // by the placement
  std::shared_ptr<CommandSink> sink TRAINYARD_GUARDED_BY(mu);
  bool attached TRAINYARD_GUARDED_BY(mu) = false;
  bool over TRAINYARD_GUARDED_BY(mu) = false;  // the process is gone, nobody is let in
  std::optional<std::string> stop TRAINYARD_GUARDED_BY(mu);  // the reason, once asked
  int64_t stop_term_us TRAINYARD_GUARDED_BY(mu) = kNever;    // when the ladder steps in
  int64_t stop_kill_us TRAINYARD_GUARDED_BY(mu) = kNever;
};

}  // namespace trainyard::server
