#include "server/dispatch/deadlines.h"

#include "src/base/check.h"

namespace trainyard::server {

void Deadlines::note(const JobBrief& job) {
  if (const auto known = by_uid_.find(job.uid); known != by_uid_.end()) {
    by_time_.erase({known->second, job.uid});
    by_uid_.erase(known);
  }
  if (job.running_since_us == 0 || !job.resources.has_time_limit_seconds()) return;
  const int64_t deadline_us =
      job.running_since_us - job.run_time_us + job.resources.time_limit_seconds() * 1'000'000;
  by_time_.emplace(deadline_us, job.uid);
  by_uid_.emplace(job.uid, deadline_us);
  TRAINYARD_CHECK(by_time_.size() == by_uid_.size(), "a job has two deadlines");
}

std::vector<std::string> Deadlines::take_passed(int64_t now_us) {
  std::vector<std::string> passed;
  while (!by_time_.empty() && by_time_.begin()->first <= now_us) {
    by_uid_.erase(by_time_.begin()->second);
    passed.push_back(by_time_.begin()->second);
    by_time_.erase(by_time_.begin());
  }
  return passed;
}

std::optional<int64_t> Deadlines::next() const {
  if (by_time_.empty()) return std::nullopt;
  return by_time_.begin()->first;
}

void Deadlines::clear() {
  by_time_.clear();
  by_uid_.clear();
}

}  // namespace trainyard::server
