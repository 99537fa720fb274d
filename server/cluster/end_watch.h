// server/cluster/end_watch.h: what a series of looks at one attempt amounts to.
//
// Pure: no clock inside, and no memory of other attempts. The rules:
// - a look that failed, or that left the attempt out, is no evidence;
// - terminal, or started again by an administrator, under the attempt's name: over. Not while its
//   worker still reports: a cluster that has lost a node says that its jobs have ended;
// - waiting again under the id that had nodes: the same as started again;
// - not there: over once that has been so for a long time without a break, over answers that
//   succeeded. Looks that failed in between, and a daemon that did not look, add no time to it;
// - silent for longer than the lease, after which a worker ends by itself: over.
// A verdict of over stays. It permits the next attempt, it is not what makes that safe: the number
// of the attempt is, since what an older one reports is rejected.
#pragma once

#include <cstdint>
#include <string>

#include "server/cluster/placement.h"

namespace trainyard::server {

struct EndRules {
  int64_t lease_us = 1'800'000'000;      // a worker that hears nothing for so long ends by itself
  int64_t lease_margin_us = 60'000'000;  // for the end itself, and for clocks that run differently
  int64_t absent_us_min = 300'000'000;   // the longer of this and the lease
  int64_t gap_us_max = 120'000'000;      // between two looks, as far as it counts as absence
  int64_t quiet_us = 30'000'000;         // a worker that reported within it is not believed dead
};

enum class Fate : uint8_t { kUnknown, kWaiting, kGranted, kOver };

struct Verdict {
  Fate fate = Fate::kUnknown;
  std::string why;  // for people
  /// Of kOver: nobody saw its processes end. They may run until their lease is over, and hold
  /// devices; what they report is rejected.
  bool may_linger = false;
};

class EndWatch {
 public:
  /// `now_us` is a steady clock's, here and below. After a restart of the daemon a watch begins
  /// anew: `attached` says that a worker has reported before, which might do so again.
  EndWatch(EndRules rules, int64_t now_us, bool attached = false);

  /// A look at this attempt.
  void saw(const Sighting& sighting, int64_t now_us);
  /// A look that failed, or an answer without this attempt.
  void saw_nothing();
  /// Its worker reported, with this attempt's credential.
  void heard(int64_t now_us);

  Verdict verdict(int64_t now_us);

 private:
  void judge(int64_t now_us);

  EndRules rules_;
  Verdict verdict_;
  std::string ended_how_;   // empty: no end was seen
  std::string granted_id_;  // empty: it was never seen with nodes
  bool attached_;
  bool last_was_absent_ = false;
  int64_t heard_us_;  // or when the watch began
  int64_t last_absent_us_ = 0;
  int64_t absent_for_us_ = 0;
};

/// Whether an end with this `how` leaves open if the processes are gone: the nodes were lost.
bool is_of_a_lost_node(std::string_view how);

}  // namespace trainyard::server
