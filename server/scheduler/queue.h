// server/scheduler/queue.h: the jobs that wait, in the order in which they may start.
//
// An index of what the store has, kept up to date change by change, so that a look at a long queue
// costs no more than at a short one. Jobs of one owner that ask for the same, their bytes rounded,
// stand in one line: there are few lines, however many jobs.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

class Queue {
 public:
  /// Higher priority first, then in order of submission.
  struct Before {
    bool operator()(const WaitingJob* a, const WaitingJob* b) const {
      return a->priority != b->priority ? a->priority > b->priority : a->order < b->order;
    }
  };
  struct Class {
    std::string owner;
    DeviceRequest asked;
    int64_t cpu_bucket = 0, gpu_bucket = 0;  // of the bytes that it needs: bucket_of()
    auto operator<=>(const Class&) const = default;
  };
  struct Line {
    int64_t id = 0;  // never used again
    std::set<const WaitingJob*, Before> jobs;
    size_t front = 0;  // in fronts()
  };
  /// A line and what a look at all of them asks of its first job, side by side: a look that went to
  /// each line and job for it would mostly wait for memory.
  struct Front {
    const Class* of = nullptr;
    Line* line = nullptr;
    DeviceWish wish = DeviceWish::kAuto;
    int32_t priority = 0;
    int64_t order = 0, retry_time_us = 0;
    int64_t cpu_floor = 0, gpu_floor = 0;  // floor_of()
  };

  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Adds the job, or replaces what was known of it.
  void put(WaitingJob job);
  /// Nothing happens if it does not wait.
  void remove(std::string_view uid);
  void clear();

  bool empty() const { return places_.empty(); }
  size_t size() const { return places_.size(); }
  /// Null if it does not wait.
  const WaitingJob* find(std::string_view uid) const;
  /// 0 if it does not wait.
  int64_t line_of(std::string_view uid) const;
  /// Lines are not empty.
  const std::map<Class, Line>& lines() const { return lines_; }
  /// Of all lines, in no order.
  const std::vector<Front>& fronts() const { return fronts_; }
  /// The newest line that there has been.
  int64_t last_line() const { return last_line_; }
  /// What the job takes of GPUs if it may use them: time, times GPUs; 0: unknown.
  static double gpu_us_of(const WaitingJob& job);
  /// The same of all jobs before it, by priority and order of submission.
  double gpu_us_before(const WaitingJob& job) const;
  /// When the first of the pauses after `now_us` ends (is_resting).
  std::optional<int64_t> next_retry_us(int64_t now_us) const;

  /// Jobs whose bytes differ by less than a seventh or so are looked at alike.
  static int64_t bucket_of(int64_t bytes);
  /// The least bytes in the bucket.
  static int64_t floor_of(int64_t bucket) { return (bucket % 16) << (bucket / 16); }

 private:
  struct Place {
    std::map<Class, Line>::iterator line;
    std::unique_ptr<const WaitingJob> job;
  };
  /// Jobs of one priority that were submitted one after another, so that a sum over all before one
  /// takes few steps.
  struct Stretch {
    double gpu_us = 0;
    std::map<int64_t, double> jobs;  // by order
  };
  using StretchKey = std::pair<int64_t, int64_t>;  // the negative priority; then by order
  static StretchKey stretch_of(const WaitingJob& job) {
    return {-int64_t{job.priority}, job.order / 512};
  }
  /// After the line's jobs have changed; there are some.
  void note_front(const Line& line);

  std::map<Class, Line> lines_;
  std::vector<Front> fronts_;
  std::map<StretchKey, Stretch> on_gpus_;
  std::unordered_map<std::string_view, Place> places_;  // by uid, which the job owns
  std::set<std::pair<int64_t, int64_t>> retries_;  // retry_time_us, order; of those that have one
  int64_t last_line_ = 0;
};

}  // namespace trainyard::server
