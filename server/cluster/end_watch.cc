#include "server/cluster/end_watch.h"

#include <algorithm>

#include "src/base/duration.h"

namespace trainyard::server {

bool is_of_a_lost_node(std::string_view how) {
  return how.starts_with("NODE_FAIL") || how.starts_with("BOOT_FAIL");
}

EndWatch::EndWatch(EndRules rules, int64_t now_us, bool attached)
    : rules_(rules), attached_(attached), heard_us_(now_us) {}

void EndWatch::saw(const Sighting& sighting, int64_t now_us) {
  if (verdict_.fate == Fate::kOver) return;
  if (sighting.seen == Seen::kUnseen) {
    if (last_was_absent_) {
      absent_for_us_ += std::clamp<int64_t>(now_us - last_absent_us_, 0, rules_.gap_us_max);
    }
    last_was_absent_ = true;
    last_absent_us_ = now_us;
    verdict_ = {Fate::kUnknown, "the cluster does not list it", false};
    judge(now_us);
    return;
  }
  last_was_absent_ = false;
  absent_for_us_ = 0;
  ended_how_.clear();
  if (sighting.seen == Seen::kGranted) {
    granted_id_ = sighting.handle.id;
    verdict_ = {Fate::kGranted, sighting.nodes, false};
  } else if (sighting.seen == Seen::kEnded) {
    ended_how_ = sighting.how.empty() ? "ended" : sighting.how;
  } else if (!granted_id_.empty() && granted_id_ == sighting.handle.id) {
    ended_how_ = "REQUEUED";
  } else {
    verdict_ = {Fate::kWaiting, sighting.reason, false};
  }
  if (!ended_how_.empty()) {
    verdict_ = {Fate::kUnknown,
                "the cluster reports " + ended_how_ + ", but its worker may still be running",
                false};
  }
  judge(now_us);
}

void EndWatch::saw_nothing() { last_was_absent_ = false; }

void EndWatch::heard(int64_t now_us) {
  attached_ = true;
  heard_us_ = std::max(heard_us_, now_us);
  last_was_absent_ = false;
  absent_for_us_ = 0;
}

Verdict EndWatch::verdict(int64_t now_us) {
  judge(now_us);
  return verdict_;
}

void EndWatch::judge(int64_t now_us) {
  if (verdict_.fate == Fate::kOver) return;
  const int64_t silent_us = now_us - heard_us_;
  const int64_t absent_us = std::max(rules_.absent_us_min, rules_.lease_us);
  if (!ended_how_.empty() && (!attached_ || silent_us >= rules_.quiet_us)) {
    verdict_ = {Fate::kOver, "the cluster ended it: " + ended_how_, is_of_a_lost_node(ended_how_)};
  } else if (absent_for_us_ >= absent_us) {
    verdict_ = {Fate::kOver,
                "the cluster has not listed it for " + duration_text(absent_for_us_ / 1'000'000),
                true};
  } else if (attached_ && silent_us >= rules_.lease_us + rules_.lease_margin_us) {
    verdict_ = {Fate::kOver,
                "its worker has been silent for " + duration_text(silent_us / 1'000'000) +
                    ", longer than its lease",
                true};
  }
}

}  // namespace trainyard::server
