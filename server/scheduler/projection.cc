#include "server/scheduler/projection.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "server/scheduler/fleet.h"
#include "server/scheduler/order.h"
#include "server/scheduler/reasons.h"
#include "server/scheduler/room.h"

namespace trainyard::server {
namespace {

/// Devices of a kind that are looked into for one job; those beyond come free later.
constexpr int kDevicesMax = 256;

using Field = int64_t Range::*;  // low, likely or high

std::vector<const WaitingJob*> in_order(const Queue& queue, const Shares& shares, int64_t now_us,
                                        size_t count_max) {
  Order order(shares, now_us);
  for (const auto& [of, line] : queue.lines()) {
    order.push({&of, &line, line.jobs.begin(), order.usage(of.owner), 0});
  }
  std::vector<const WaitingJob*> jobs;
  while (!order.empty() && jobs.size() < count_max) {
    Head head = order.pop();
    const WaitingJob& job = head.first();
    jobs.push_back(&job);
    order.charge(job.owner, static_cast<size_t>(job.asked.gpus));
    ++head.job;
    if (head.over()) continue;
    head.usage = order.usage(head.of->owner);
    order.push(head);
  }
  return jobs;
}

/// The fleet's future, with one end for each job.
class Future {
 public:
  Future(const Fleet& fleet, Field field, int64_t now_us)
      : fleet_(fleet), field_(field), now_us_(now_us), first_(fleet.groups().size()) {
    for (Fleet::Index i = 0; i < std::ssize(fleet.devices().devices); ++i) {
      const Device& d = fleet.device(i);
      Place& place = places_.emplace_back();
      place.overhead = d.memory_bytes > 0 ? d.overhead_bytes : 0;
      for (const PlacedJob* job : fleet.node(i).jobs) {
        int64_t end = kUnlimited;
        if (job->stopping || job->end.known()) {
          end = std::max(now_us, job->stopping ? 0 : job->end.*field);
        }
        place.stays.push_back({end, job->bytes, job->threads, job->exclusive});
      }
      if (fleet.node(i).usable) list(i);
    }
  }

  struct Start {
    int64_t time_us = kUnlimited, end_us = kUnlimited;
    std::vector<Fleet::Index> devices;
  };
  /// Where it fits first on devices of this kind.
  Start find(const WaitingJob& job, DeviceKind kind) const {
    Start best;
    const auto count = static_cast<size_t>(Room::count_of(job, kind));
    for (size_t group = 0; group < first_.size(); ++group) {
      const Fleet::Group& g = fleet_.groups()[group];
      if (g.kind != kind || static_cast<size_t>(g.usable) < count) continue;
      std::vector<std::pair<int64_t, Fleet::Index>> found;
      int looked = 0;
      for (const auto& [least, device] : first_[group]) {
        const bool enough = found.size() == count;
        if (++looked > kDevicesMax || (enough && least >= found.back().first)) break;
        const std::pair entry{fit_time(device, job, kind), device};
        if (entry.first == kUnlimited || (enough && entry >= found.back())) continue;
        if (enough) found.pop_back();
        found.insert(std::ranges::upper_bound(found, entry), entry);
      }
      if (found.size() < count || found.back().first >= best.time_us) continue;
      best.time_us = found.back().first;
      best.devices.clear();
      for (const auto& [time, device] : found) best.devices.push_back(device);
    }
    if (best.devices.empty()) return best;
    best.time_us = std::max(best.time_us, is_resting(job, now_us_) ? job.retry_time_us : now_us_);
    const Range& rest = job.on(kind).rest;
    if (rest.known()) best.end_us = best.time_us + rest.*field_;
    return best;
  }
  void take(const WaitingJob& job, DeviceKind kind, const Start& start) {
    for (const Fleet::Index i : start.devices) {
      unlist(i);
      places_[static_cast<size_t>(i)].stays.push_back(
          {start.end_us, job.on(kind).bytes, job.asked.threads, job.asked.exclusive});
      list(i);
    }
  }

 private:
  struct Stay {
    int64_t end_us;
    int64_t bytes;
    int32_t threads;
    bool exclusive;
  };
  struct Place {
    int64_t overhead = 0;
    int64_t least_us = 0;  // nothing more fits before
    std::vector<Stay> stays;
  };

  // Until all that are there have ended, but for those that need not have.
  int64_t fit_time(Fleet::Index i, const WaitingJob& job, DeviceKind kind) const {
    const Fleet::Node& node = fleet_.node(i);
    const Device& d = fleet_.device(i);
    std::vector<Stay> stays = places_[static_cast<size_t>(i)].stays;
    std::ranges::sort(stays, {}, &Stay::end_us);
    const auto cores = [&](int32_t threads) { return std::min(threads, node.cores); };
    int64_t room = node.idle_bytes - job.on(kind).bytes;
    int32_t free = node.cores - cores(job.asked.threads);
    for (const Stay& s : stays) {
      room -= s.bytes + places_[static_cast<size_t>(i)].overhead;
      free -= cores(s.threads);
    }
    int64_t time = now_us_;
    for (size_t gone = 0;; ++gone) {
      const auto left = stays.size() - gone;
      const bool alone = std::any_of(stays.begin() + static_cast<std::ptrdiff_t>(gone), stays.end(),
                                     [](const Stay& s) { return s.exclusive; });
      if ((room >= 0 || d.memory_bytes == 0) && (node.cores == 0 || free >= 0) && !alone &&
          std::cmp_less(left, d.slots) && (!job.asked.exclusive || left == 0)) {
        return time;
      }
      if (gone == stays.size() || stays[gone].end_us == kUnlimited) return kUnlimited;
      time = stays[gone].end_us;
      room += stays[gone].bytes + places_[static_cast<size_t>(i)].overhead;
      free += cores(stays[gone].threads);
    }
  }
  void list(Fleet::Index i) {
    const Fleet::Node& node = fleet_.node(i);
    Place& place = places_[static_cast<size_t>(i)];
    // A small job may fit already: a device is full for sure only by its slots.
    place.least_us = now_us_;
    if (std::cmp_greater_equal(place.stays.size(), fleet_.device(i).slots)) {
      std::vector<int64_t> ends;
      for (const Stay& s : place.stays) ends.push_back(s.end_us);
      std::ranges::sort(ends);
      place.least_us = ends[ends.size() - static_cast<size_t>(std::max(1, fleet_.device(i).slots))];
    }
    first_[static_cast<size_t>(node.group)].emplace(place.least_us, i);
  }
  void unlist(Fleet::Index i) {
    first_[static_cast<size_t>(fleet_.node(i).group)].erase(
        {places_[static_cast<size_t>(i)].least_us, i});
  }

  const Fleet& fleet_;
  const Field field_;
  const int64_t now_us_;
  std::vector<Place> places_;
  std::vector<std::set<std::pair<int64_t, Fleet::Index>>> first_;  // by group
};

// The kind as decide() would choose it.
DeviceKind choose(const WaitingJob& job, const Fleet& fleet, const Future& future) {
  const auto has = [&](DeviceKind kind) {
    return std::ranges::any_of(fleet.groups(),
                               [&](const Fleet::Group& g) { return g.kind == kind && g.soon > 0; });
  };
  if (job.asked.wish == DeviceWish::kAuto && !job.asked.kind_before && job.on_cpu.rest.known() &&
      job.on_gpu.rest.known() && has(DeviceKind::kGpu)) {
    const int64_t on_gpu_us = future.find(job, DeviceKind::kGpu).end_us;
    if (future.find(job, DeviceKind::kCpu).end_us < on_gpu_us && on_gpu_us != kUnlimited) {
      return DeviceKind::kCpu;
    }
  }
  return choose_kind(job.asked, has(DeviceKind::kCpu), has(DeviceKind::kGpu), "").kind;
}

}  // namespace

std::vector<Projected> project(const Queue& queue, const Fleet& fleet, const Shares& shares,
                               int64_t now_us, size_t count_max) {
  const std::vector<const WaitingJob*> jobs = in_order(queue, shares, now_us, count_max);
  std::vector<Projected> projected(jobs.size());
  for (const Field field : {&Range::low_us, &Range::likely_us, &Range::high_us}) {
    Future future(fleet, field, now_us);
    for (size_t j = 0; j < jobs.size(); ++j) {
      const DeviceKind kind = choose(*jobs[j], fleet, future);
      const Future::Start start = future.find(*jobs[j], kind);
      future.take(*jobs[j], kind, start);
      Projected& to = projected[j];
      to.uid = jobs[j]->uid;
      if (start.time_us != kUnlimited) to.start.*field = start.time_us;
      if (start.end_us != kUnlimited) to.end.*field = start.end_us;
      if (field == &Range::likely_us && !start.devices.empty()) {
        to.device = fleet.device(start.devices.front()).name;
      }
    }
  }
  for (Projected& p : projected) {
    for (Range* range : {&p.start, &p.end}) {
      if (range->low_us == 0 || range->likely_us == 0 || range->high_us == 0) *range = {};
      // What is slower for all need not be later for each.
      range->low_us = std::min(range->low_us, range->likely_us);
      range->high_us = std::max(range->high_us, range->likely_us);
    }
  }
  return projected;
}

}  // namespace trainyard::server
