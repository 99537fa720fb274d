// server/scheduler/queue.h: the waiting jobs in the order in which they may start.
//
// The queue is an index of the store's waiting jobs. It is updated with each change, so that a
// scheduling pass costs no more for a long queue than for a short one. Jobs of one project and
// owner with the same request and about the same memory form one line, so there are few lines
// however many jobs wait.
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
    std::string project, owner;
    DeviceRequest asked;
    int64_t cpu_bucket = 0, gpu_bucket = 0;  // bucket_of() of the bytes that a job needs
    auto operator<=>(const Class&) const = default;
  };
  struct Line {
    int64_t id = 0;  // never reused
    std::set<const WaitingJob*, Before> jobs;
    size_t front = 0;  // index in fronts()
  };
  /// A line and the data of its first job that a pass over all lines needs. The fronts are
  /// contiguous in memory, because a pass that followed pointers to each line and job would mostly
  /// wait for memory.
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

  /// Adds the job, or replaces its entry.
  void put(WaitingJob job);
  /// Does nothing if the job does not wait.
  void remove(std::string_view uid);
  void clear();

  bool empty() const { return places_.empty(); }
  size_t size() const { return places_.size(); }
  /// Returns null if the job does not wait.
  const WaitingJob* find(std::string_view uid) const;
  /// Returns the ID of the job's line; 0 if the job does not wait.
  int64_t line_of(std::string_view uid) const;
  /// Returns all lines; none is empty.
  const std::map<Class, Line>& lines() const { return lines_; }
  /// Returns the fronts of all lines, in no particular order.
  const std::vector<Front>& fronts() const { return fronts_; }
  /// Returns the ID of the newest line that ever existed.
  int64_t last_line() const { return last_line_; }
  /// Returns the job's expected GPU time (time times number of GPUs), if it may use GPUs; 0:
  /// unknown.
  static double gpu_us_of(const WaitingJob& job);
  /// Returns the expected GPU time of all jobs before this one, by priority and order of
  /// submission.
  double gpu_us_before(const WaitingJob& job) const;
  /// Returns the earliest end after `now_us` of a job's retry pause (in_retry_pause).
  std::optional<int64_t> next_retry_us(int64_t now_us) const;

  /// Returns the bucket of a number of bytes. Numbers in one bucket differ by at most about a
  /// seventh; jobs in the same bucket are treated the same way.
  static int64_t bucket_of(int64_t bytes);
  /// Returns the smallest number of bytes in the bucket.
  static int64_t floor_of(int64_t bucket) { return (bucket % 16) << (bucket / 16); }

 private:
  struct Place {
    std::map<Class, Line>::iterator line;
    std::unique_ptr<const WaitingJob> job;
  };
  /// A block of jobs of one priority with adjacent orders of submission. Sums per block make the
  /// sum over all jobs before a given one fast.
  struct Stretch {
    double gpu_us = 0;
    std::map<int64_t, double> jobs;  // by order
  };
  using StretchKey = std::pair<int64_t, int64_t>;  // the negated priority, then order / 512
  static StretchKey stretch_of(const WaitingJob& job) {
    return {-int64_t{job.priority}, job.order / 512};
  }
  /// Updates the front of a line after its jobs have changed. The line must not be empty.
  void note_front(const Line& line);

  std::map<Class, Line> lines_;
  std::vector<Front> fronts_;
  std::map<StretchKey, Stretch> on_gpus_;
  // Keyed by uid; the key refers to the string in the job.
  std::unordered_map<std::string_view, Place> places_;
  // (retry_time_us, order) of jobs with a retry time
  std::set<std::pair<int64_t, int64_t>> retries_;
  int64_t last_line_ = 0;
};

}  // namespace trainyard::server
