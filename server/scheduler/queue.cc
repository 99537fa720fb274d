#include "server/scheduler/queue.h"

#include <bit>
#include <limits>

#include "src/base/check.h"

namespace trainyard::server {

// Keeps the leading bit and the three bits below it.
int64_t Queue::bucket_of(int64_t bytes) {
  if (bytes < 8) return 0;
  const int shift = 60 - std::countl_zero(static_cast<uint64_t>(bytes));
  return int64_t{shift} * 16 + (bytes >> shift);
}

void Queue::put(WaitingJob job) {
  remove(job.uid);
  const Class of{job.project, job.owner, job.asked, bucket_of(job.on_cpu.bytes),
                 bucket_of(job.on_gpu.bytes)};
  const auto line = lines_.try_emplace(of).first;
  if (line->second.id == 0) {
    line->second.id = ++last_line_;
    line->second.front = fronts_.size();
    Front& front = fronts_.emplace_back();
    front.of = &line->first;
    front.line = &line->second;
    front.wish = line->first.asked.wish;
    front.cpu_floor = floor_of(line->first.cpu_bucket);
    front.gpu_floor = floor_of(line->first.gpu_bucket);
  }
  auto owned = std::make_unique<const WaitingJob>(std::move(job));
  const bool is_new = line->second.jobs.insert(owned.get()).second;
  TRAINYARD_CHECK(is_new, "two jobs have the order " + std::to_string(owned->order));
  note_front(line->second);
  if (const double gpu_us = gpu_us_of(*owned); gpu_us > 0) {
    Stretch& stretch = on_gpus_[stretch_of(*owned)];
    stretch.jobs[owned->order] = gpu_us;
    stretch.gpu_us += gpu_us;
  }
  if (owned->retry_time_us > 0) retries_.emplace(owned->retry_time_us, owned->order);
  const auto [place, has_none] = places_.try_emplace(owned->uid);
  TRAINYARD_CHECK(has_none, "job " + owned->uid + " is in the queue twice");
  place->second = Place{line, std::move(owned)};
}

void Queue::remove(std::string_view uid) {
  const auto found = places_.find(uid);
  if (found == places_.end()) return;
  const Place place = std::move(found->second);  // `uid` may refer to the string in the job itself
  places_.erase(found);
  const bool rests = retries_.erase({place.job->retry_time_us, place.job->order}) == 1;
  TRAINYARD_CHECK(rests == (place.job->retry_time_us > 0),
                  "job " + place.job->uid + " has a retry time that the queue does not know");
  Line& line = place.line->second;
  const bool was_there = line.jobs.erase(place.job.get()) == 1;
  TRAINYARD_CHECK(was_there, "job " + place.job->uid + " is not in its line");
  if (line.jobs.empty()) {
    fronts_[line.front] = fronts_.back();
    fronts_[line.front].line->front = line.front;
    fronts_.pop_back();
    lines_.erase(place.line);
    TRAINYARD_CHECK(fronts_.size() == lines_.size(),
                    "the queue has " + std::to_string(lines_.size()) + " lines and " +
                        std::to_string(fronts_.size()) + " summaries of lines");
  } else {
    note_front(line);
  }
  const auto stretch = on_gpus_.find(stretch_of(*place.job));
  const bool was_counted =
      stretch != on_gpus_.end() && stretch->second.jobs.erase(place.job->order) == 1;
  const int64_t gpu_us = gpu_us_of(*place.job);
  TRAINYARD_CHECK(
      was_counted == (gpu_us > 0),
      "job " + place.job->uid + " leaves the queue but its GPU time was not counted there");
  if (!was_counted) return;
  stretch->second.gpu_us -= gpu_us;
  if (stretch->second.jobs.empty()) on_gpus_.erase(stretch);
}

void Queue::note_front(const Line& line) {
  const WaitingJob& first = **line.jobs.begin();
  Front& front = fronts_[line.front];
  TRAINYARD_CHECK(front.line == &line, "a line's front is another's");
  front.priority = first.priority;
  front.order = first.order;
  front.retry_time_us = first.retry_time_us;
}

void Queue::clear() {
  lines_.clear();
  places_.clear();
  retries_.clear();
  fronts_.clear();
  on_gpus_.clear();
}

const WaitingJob* Queue::find(std::string_view uid) const {
  const auto found = places_.find(uid);
  return found == places_.end() ? nullptr : found->second.job.get();
}

int64_t Queue::line_of(std::string_view uid) const {
  const auto found = places_.find(uid);
  return found == places_.end() ? 0 : found->second.line->second.id;
}

double Queue::gpu_us_of(const WaitingJob& job) {
  if (job.asked.wish == DeviceWish::kCpu) return 0;
  return static_cast<double>(job.on_gpu.rest.likely_us) * job.asked.gpus;
}

double Queue::gpu_us_before(const WaitingJob& job) const {
  double sum = 0;
  const auto last = on_gpus_.lower_bound(stretch_of(job));
  for (auto it = on_gpus_.begin(); it != last; ++it) sum += it->second.gpu_us;
  if (last == on_gpus_.end() || last->first != stretch_of(job)) return sum;
  for (const auto& [order, gpu_us] : last->second.jobs) {
    if (order >= job.order) break;
    sum += gpu_us;
  }
  return sum;
}

std::optional<int64_t> Queue::next_retry_us(int64_t now_us) const {
  const auto next = retries_.upper_bound({now_us, std::numeric_limits<int64_t>::max()});
  if (next == retries_.end() || next->first - now_us > kRetryPauseMaxUs) return std::nullopt;
  return next->first;
}

}  // namespace trainyard::server
