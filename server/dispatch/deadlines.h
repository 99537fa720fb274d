// server/dispatch/deadlines.h: when running jobs reach their time limits.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/store/job.h"

namespace trainyard::server {

class Deadlines {
 public:
  /// The job as it is now: a deadline of before is forgotten.
  void note(const JobBrief& job);
  /// Of the jobs whose deadline has come, the uids; each is told once.
  std::vector<std::string> take_passed(int64_t now_us);
  /// Wall time.
  std::optional<int64_t> next() const;
  void clear();

 private:
  std::set<std::pair<int64_t, std::string>> by_time_;
  std::unordered_map<std::string, int64_t> by_uid_;
};

}  // namespace trainyard::server
