// server/scheduler/queue.h: the jobs that wait, in the order in which they may start.
//
// An index of what the store has, kept up to date change by change, so that a look at a long queue
// costs no more than at a short one. Jobs that ask for the same stand in one line: there are few
// lines, however many jobs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

class Queue {
 public:
  /// Higher priority first, then in order of submission.
  struct Before {
    bool operator()(const WaitingJob& a, const WaitingJob& b) const {
      return a.priority != b.priority ? a.priority > b.priority : a.order < b.order;
    }
  };
  using Line = std::set<WaitingJob, Before>;

  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Adds the job, or replaces what was known of it.
  void put(WaitingJob job);
  /// Nothing happens if it does not wait.
  void remove(std::string_view uid);

  void clear();

  bool empty() const { return places_.empty(); }
  /// Lines are not empty.
  const std::map<DeviceRequest, Line>& lines() const { return lines_; }
  /// When the first of the pauses after `now_us` ends (is_resting).
  std::optional<int64_t> next_retry_us(int64_t now_us) const;

 private:
  struct Place {
    std::map<DeviceRequest, Line>::iterator line;
    Line::iterator job;
  };
  std::map<DeviceRequest, Line> lines_;
  std::unordered_map<std::string_view, Place> places_;  // by uid, which the line owns
  std::set<std::pair<int64_t, int64_t>> retries_;  // retry_time_us, order; of those that have one
};

}  // namespace trainyard::server
