// server/cluster/end_watch.h: decides from a series of queries whether an attempt has ended.
//
// It has no clock and no state of other attempts. The rules:
// - A query that failed, or a response without the attempt, is no evidence.
// - The attempt has ended if the cluster reports that it has ended or was restarted by an
//   administrator, unless its worker still reports: a cluster that has lost a node says that the
//   node's jobs have ended.
// - An attempt that waits again under the ID that had nodes counts as restarted.
// - It has ended if the cluster's successful responses have not shown it for a long time without a
//   break. Failed queries, and times without queries, do not count.
// - It has ended if its worker has been silent for longer than the lease, after which a worker
//   ends by itself.
// The verdict kOver is final. It permits the next attempt, but does not make that safe. Safety
// comes from the attempt's number: reports of older attempts are rejected.
#pragma once

#include <cstdint>
#include <string>

#include "server/cluster/placement.h"

namespace trainyard::server {

struct EndRules {
  int64_t lease_us = 1'800'000'000;      // a worker without contact for this long ends by itself
  int64_t lease_margin_us = 60'000'000;  // for the worker's end, and for differing clock rates
  int64_t absent_us_min = 300'000'000;   // the absence that proves an end (at least the lease)
  int64_t gap_us_max = 120'000'000;      // the most that counts as absence between two queries
  // A worker that reported within this time is considered alive.
  int64_t quiet_us = 30'000'000;
};

enum class Fate : uint8_t { kUnknown, kWaiting, kGranted, kOver };

struct Verdict {
  Fate fate = Fate::kUnknown;
  std::string why;  // for people
  /// For kOver: nothing confirmed the end of the processes. They may run until their lease is over
  /// and occupy devices; their reports are rejected.
  bool may_linger = false;
};

class EndWatch {
 public:
  /// `now_us` is the time of a steady clock, here and below. After a restart of the daemon a new
  /// watch begins: `attached` says that the worker has reported before, so it may report again.
  EndWatch(EndRules rules, int64_t now_us, bool attached = false);

  /// Records the attempt's state in the cluster.
  void saw(const Sighting& sighting, int64_t now_us);
  /// Records a failed query, or a response without this attempt.
  void saw_nothing();
  /// Records that its worker reported, with this attempt's credential.
  void heard(int64_t now_us);

  Verdict verdict(int64_t now_us);

 private:
  void judge(int64_t now_us);

  EndRules rules_;
  Verdict verdict_;
  std::string ended_how_;   // empty: the cluster has not reported an end
  std::string granted_id_;  // empty: the cluster has never reported nodes
  bool attached_;
  bool last_was_absent_ = false;
  int64_t heard_us_;  // time of the last report, or when the watch began
  int64_t last_absent_us_ = 0;
  int64_t absent_for_us_ = 0;
};

/// Returns whether an end with this `how` does not prove that the processes have ended, because
/// nodes were lost.
bool is_of_a_lost_node(std::string_view how);

}  // namespace trainyard::server
