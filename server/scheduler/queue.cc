#include "server/scheduler/queue.h"

#include <limits>

namespace trainyard::server {

void Queue::put(WaitingJob job) {
  remove(job.uid);
  const auto line = lines_.try_emplace(job.asked).first;
  const auto place = line->second.insert(std::move(job)).first;
  places_.emplace(place->uid, Place{line, place});
  if (place->retry_time_us > 0) retries_.emplace(place->retry_time_us, place->order);
}

void Queue::remove(std::string_view uid) {
  const auto found = places_.find(uid);
  if (found == places_.end()) return;
  const auto [line, job] = found->second;
  retries_.erase({job->retry_time_us, job->order});
  places_.erase(found);
  line->second.erase(job);
  if (line->second.empty()) lines_.erase(line);
}

void Queue::clear() {
  places_.clear();  // refers to the lines
  lines_.clear();
  retries_.clear();
}

std::optional<int64_t> Queue::next_retry_us(int64_t now_us) const {
  const auto next = retries_.upper_bound({now_us, std::numeric_limits<int64_t>::max()});
  if (next == retries_.end() || next->first - now_us > kRetryPauseMaxUs) return std::nullopt;
  return next->first;
}

}  // namespace trainyard::server
