// server/cluster/placement.h: where attempts run that are not processes of this daemon.
//
// A cluster's scheduler hands out allocations and says what has died; results come from the worker
// alone, and the number of the attempt is the fence. So nothing here says that work went well, and
// no answer is needed for what counts to be right: a lost answer costs time.
//
// The order that loses nothing: the intent is committed with its name; submit(); the handle is
// committed. After a crash in between, or an Unknown, find() tells what is there.
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
  std::string title;  // what people see of the job
  int32_t nodes = 1;
  int32_t gpus_per_node = 0;
  int32_t cpus = 1;             // of a node
  int64_t memory_bytes = 0;     // of a node; 0: what the cluster gives by default
  int64_t time_limit_s = 0;     // 0: the profile's
  std::string attach;           // host:port of the daemon's listener for workers
  std::string certificate_pem;  // of that listener; workers accept no other
  std::string task;             // id, for the worker's command line
  std::string secret;           // works once; goes to the worker's standard input, nowhere else
};

/// What is known of an attempt's place. The name decides: a scheduler's ids come round again.
struct PlacementHandle {
  std::string id;  // empty: not known, after a submission that was not answered
  std::string name;

  bool operator==(const PlacementHandle&) const = default;
};

enum class Seen : uint8_t {
  kWaiting,  // in the scheduler's queue
  kGranted,  // has nodes; also while its processes are being ended
  kEnded,    // terminal, seen under the name; or started again by an administrator (REQUEUED)
  kUnseen,   // asked for by itself, of the right cluster, and the answer was that it is not there
};

/// One look at one attempt. Evidence of that moment; EndWatch makes a verdict of many.
struct Sighting {
  PlacementHandle handle;  // with the id that was found, which may be another than was asked for
  Seen seen = Seen::kUnseen;
  std::string reason;             // of waiting, in the scheduler's words: "Resources"
  int64_t start_estimate_us = 0;  // wall clock; 0: none. Of a granted one: when it started
  std::string nodes;              // names, as the scheduler writes lists of them
  std::string how;  // of an end, in its words: "NODE_FAIL", "FAILED (NonZeroExitCode)"
};

struct Submitted {
  PlacementHandle handle;
};
struct SubmitUnknown {  // it may exist, now or in a moment: find() tells
  std::string text;
};
struct SubmitRefused {  // it does not exist and will not: the scheduler said no, in these words
  enum class Cause : uint8_t {
    kNow,      // a limit on what is queued, nodes that are down, a command that is missing
    kCluster,  // what the profile names: a partition, an account. The next attempt's is refused too
    kRequest,  // this request; also whatever nobody knows the words of
  };
  std::string text;
  Cause cause = Cause::kRequest;
};
using SubmitAnswer = std::variant<Submitted, SubmitUnknown, SubmitRefused>;

/// What a look at the cluster found when the daemon started.
struct PlacementCheck {
  std::string text;     // lines for people: what is there, and warnings
  std::string refused;  // the scheduler's words if it takes nothing with this profile; else empty
};

/// Thread-safe. Each call takes time, bounded by the placement's own limit: not for a thread that
/// others wait for.
class Placement {
 public:
  virtual ~Placement() = default;

  virtual SubmitAnswer submit(const AttemptIntent& intent) = 0;

  /// What is there now. A handle that the answer leaves out has no evidence this time, neither for
  /// nor against; an error is the same for all of them.
  virtual Result<std::vector<Sighting>> observe(std::span<const PlacementHandle> handles) = 0;

  /// Asks for the end of everything under the handle's name. OK says that it was asked; it is over
  /// when observe() has seen it. May be repeated, also for one that is gone.
  virtual Status withdraw(const PlacementHandle& handle) = 0;

  /// By exact name; of several under one name, the one that runs, then one that waits. Nothing: an
  /// answer said that there is none, as yet. Error: not known.
  virtual Result<std::optional<PlacementHandle>> find(const std::string& name) = 0;

  /// A sentence for people about how an attempt ended, or empty. Asks once, where it may be known.
  virtual std::string explain(const PlacementHandle& handle) = 0;

  /// At start. Changes nothing.
  virtual PlacementCheck check() = 0;

  /// The daemon ends: what is being asked comes to an end within seconds, and nothing is asked any
  /// more. A submission is Unknown then, anything else an error or without evidence.
  virtual void stop() {}
};

/// 1 to 200 letters, digits and '-', first a letter, all small: what an attempt may be called.
bool is_placement_name(std::string_view name);

}  // namespace trainyard::server
