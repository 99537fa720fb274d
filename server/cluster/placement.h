// server/cluster/placement.h: the interface to the scheduler of a cluster, which runs attempts that
// are not processes of this daemon.
//
// A cluster's scheduler grants allocations and reports which of them have ended. Results come only
// from the worker, and the attempt's number fences older attempts. So no response of the scheduler
// says that an attempt succeeded, and correctness needs none of its responses: a lost one costs
// time.
//
// The order of the steps that loses no attempt: the intent is committed with its name; submit() is
// called; the handle is committed. After a crash between these steps, or after SubmitUnknown,
// find() returns what exists.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

/// Committed in the store before submit() is called.
struct AttemptIntent {
  std::string name;   // ty-<instance>-<job uid>-<attempt>: unique, [a-z0-9-], never reused
  std::string title;  // the job's title, for people
  int32_t nodes = 1;
  int32_t gpus_per_node = 0;
  int32_t cpus = 1;             // of a node
  int64_t memory_bytes = 0;     // of a node; 0: the cluster's default
  int64_t time_limit_s = 0;     // 0: the profile's
  std::string attach;           // host:port of the daemon's listener for workers
  std::string certificate_pem;  // of that listener; workers trust only this one
  std::string task;             // id, for the worker's command line
  std::string secret;           // valid once; only written to the worker's standard input
};

/// Identifies an attempt's job in the cluster. The name decides, because schedulers reuse their
/// IDs.
struct PlacementHandle {
  std::string id;  // empty: not known, because the submission was not confirmed
  std::string name;

  bool operator==(const PlacementHandle&) const = default;
};

enum class Seen : uint8_t {
  kWaiting,  // in the scheduler's queue
  kGranted,  // has nodes; also while its processes are being killed
  kEnded,    // in a final state, or restarted by an administrator (REQUEUED)
  kUnseen,   // the right cluster was queried for this attempt alone and does not have it
};

/// The state of an attempt in the cluster at one time. EndWatch decides from several of them
/// whether the attempt has ended.
struct Sighting {
  PlacementHandle handle;  // with the ID that was found, which may differ from the requested one
  Seen seen = Seen::kUnseen;
  std::string reason;             // why it waits, in the scheduler's words: "Resources"
  int64_t start_estimate_us = 0;  // wall clock; 0: none. If granted, when it started
  std::string nodes;              // names, in the scheduler's list format
  // How it ended, in the scheduler's words: "NODE_FAIL", "FAILED (NonZeroExitCode)".
  std::string how;
};

struct Submitted {
  PlacementHandle handle;
};
struct SubmitUnknown {  // the job may exist, or appear soon: find() shows whether it does
  std::string text;
};
struct SubmitRefused {  // the job does not exist: the scheduler refused it, with this text
  enum class Cause : uint8_t {
    kNow,  // a temporary cause: a limit on queued jobs, nodes that are down, a missing command
    // A name in the profile, such as a partition or an account: the next attempt would be refused,
    // too.
    kCluster,
    kRequest,  // this request is refused, or the text is not recognized
  };
  std::string text;
  Cause cause = Cause::kRequest;
};
using SubmitAnswer = std::variant<Submitted, SubmitUnknown, SubmitRefused>;

/// The result of checking the cluster when the daemon starts.
struct PlacementCheck {
  std::string text;  // lines for people: the cluster's data and warnings
  // The scheduler's words if it refuses all jobs with this profile; else empty.
  std::string refused;
};

/// Thread-safe. Each call blocks, at most for the placement's own limit, so it must not be made by
/// a thread for which others wait.
class Placement {
 public:
  virtual ~Placement() = default;

  virtual SubmitAnswer submit(const AttemptIntent& intent) = 0;

  /// Returns the current state of these attempts. A missing handle means that nothing was learned
  /// about it; an error means this for all of them.
  virtual Result<std::vector<Sighting>> observe(std::span<const PlacementHandle> handles) = 0;

  /// Requests the end of everything under the handle's name. OK means that the request was
  /// accepted; observe() shows when the attempt has ended. May be repeated, also after the end.
  virtual Status withdraw(const PlacementHandle& handle) = 0;

  /// Finds an attempt by its exact name. If several jobs have the name, returns the running one,
  /// else one that waits. Returns nothing if the cluster reported that there is none yet, and an
  /// error if this is not known.
  virtual Result<std::optional<PlacementHandle>> find(const std::string& name) = 0;

  /// Returns a sentence for people about how an attempt ended, or empty. Queries the cluster once.
  virtual std::string explain(const PlacementHandle& handle) = 0;

  /// Checks the cluster when the daemon starts. Changes nothing.
  virtual PlacementCheck check() = 0;

  /// Ends running commands within seconds and starts no more, because the daemon stops. Afterwards
  /// submit() returns SubmitUnknown, and other calls return an error or no evidence.
  virtual void stop() {}
};

/// Returns whether `name` may name an attempt: 1 to 200 lower-case letters, digits and '-', first a
/// letter.
bool is_placement_name(std::string_view name);

}  // namespace trainyard::server
