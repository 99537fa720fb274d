// server/scheduler/order.h: which line of the queue is next.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/scheduler/queue.h"
#include "server/scheduler/shares.h"

namespace trainyard::server {

/// The rest of a line that has not been decided on.
struct Head {
  const Queue::Class* of = nullptr;
  const Queue::Line* line = nullptr;
  std::set<const WaitingJob*, Queue::Before>::const_iterator job;
  double usage = 0;  // of its owner, when it was put in its place
  int misses = 0;
  int32_t priority = 0;  // of the first job, for comparisons
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
  void go_on() {
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

/// For a heap with the next job on top: priority, usage of the owner, order of submission.
inline bool is_behind(const Head& a, const Head& b) {
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.usage != b.usage) return a.usage > b.usage;
  return a.order > b.order;
}

/// A heap of lines, whose owners' usage grows with what they are given meanwhile.
class Order {
 public:
  Order(const Shares& shares, int64_t now_us);
  double usage(const std::string& owner);
  /// The owner's jobs have so many devices more.
  void charge(const std::string& owner, size_t devices);
  void push(Head head);
  /// The first ones, at once.
  void push(std::vector<Head> heads);
  /// Takes the line with the next job; there must be one.
  Head pop();
  bool empty() const { return heads_.empty(); }

 private:
  const Shares& shares_;
  const int64_t now_us_;
  std::vector<Head> heads_;                             // a heap
  std::unordered_map<std::string_view, double> usage_;  // device-seconds by owner, as of the queue
};

}  // namespace trainyard::server
