// server/dispatch/deadlines.h: keeps the times at which running jobs reach their time limits.
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
  /// Updates the job's deadline; replaces or removes an earlier one.
  void note(const JobBrief& job);
  /// Removes the deadlines that have passed and returns the uids of their jobs.
  std::vector<std::string> take_passed(int64_t now_us);
  /// Returns the next deadline, in wall-clock microseconds.
  std::optional<int64_t> next() const;
  void clear();

 private:
  std::set<std::pair<int64_t, std::string>> by_time_;
  std::unordered_map<std::string, int64_t> by_uid_;
};

}  // namespace trainyard::server
