// server/scheduler/order.h: determines which line of the queue is next.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/scheduler/queue.h"
#include "server/scheduler/shares.h"

namespace trainyard::server {

/// A position in a line of the queue: the jobs from here on are not decided yet.
struct Head {
  const Queue::Class* of = nullptr;
  const Queue::Line* line = nullptr;
  std::set<const WaitingJob*, Queue::Before>::const_iterator job;
  double usage = 0;  // its owner's usage when the head was pushed on the heap
  int misses = 0;
  int32_t priority = 0;  // priority of the first job, cached for comparisons
  int64_t order = 0;

  Head(const Queue::Front& front, double usage_now)
      : of(front.of),
        line(front.line),
        job(front.line->jobs.begin()),
        usage(usage_now),
        priority(front.priority),
        order(front.order) {}
  const WaitingJob& first() const { return **job; }
  bool over() const { return job == line->jobs.end(); }
  void advance() {
    ++job;
    note();
  }

 private:
  void note() {
    if (over()) return;
    priority = first().priority;
    order = first().order;
  }
};

/// Compares for a heap with the next job on top: by priority, then usage of the owner, then order
/// of submission.
inline bool is_behind(const Head& a, const Head& b) {
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.usage != b.usage) return a.usage > b.usage;
  return a.order > b.order;
}

/// A heap of lines. The usage of an owner grows with each device that the owner is given during a
/// pass.
class Order {
 public:
  Order(const Shares& shares, int64_t now_us);
  double usage(const std::string& owner);
  /// Adds `devices` more devices to the owner's usage.
  void charge(const std::string& owner, size_t devices);
  void push(Head head);
  /// Sets the initial heads in one call.
  void push(std::vector<Head> heads);
  /// Removes and returns the line with the next job; the heap must not be empty.
  Head pop();
  bool empty() const { return heads_.empty(); }

 private:
  const Shares& shares_;
  const int64_t now_us_;
  std::vector<Head> heads_;                             // a heap
  std::unordered_map<std::string_view, double> usage_;  // device-seconds by owner
};

}  // namespace trainyard::server
