#include "server/scheduler/projection.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/order.h"
#include "server/scheduler/reasons.h"
#include "server/scheduler/room.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {

/// The largest number of devices per group that are examined for one job, those that become free
/// first.
constexpr int kDevicesMax = 256;

using Field = int64_t Range::*;  // low, likely or high

std::vector<const WaitingJob*> in_order(const Queue& queue, const Shares& shares, int64_t now_us,
                                        size_t count_max, std::string_view last_uid) {
  Order order(shares, now_us);
  std::vector<Head> heads;
  for (const Queue::Front& front : queue.fronts()) {
    heads.emplace_back(front, order.usage(front.of->owner));
  }
  order.push(std::move(heads));
  std::vector<const WaitingJob*> jobs;
  while (!order.empty() && jobs.size() < count_max) {
    Head head = order.pop();
    const WaitingJob& job = head.first();
    jobs.push_back(&job);
    if (job.uid == last_uid) break;
    order.charge(job.owner, static_cast<size_t>(job.asked.gpus));
    head.advance();
    if (head.over()) continue;
    head.usage = order.usage(head.of->owner);
    order.push(head);
  }
  return jobs;
}

/// The future occupation of the fleet, if each job ends at its low, likely or high forecast
/// (`field`).
class Future {
 public:
  Future(const Fleet& fleet, Field field, int64_t now_us)
      : fleet_(fleet), field_(field), now_us_(now_us), first_(fleet.groups().size()) {
    places_.reserve(fleet.devices().devices.size());
    for (Fleet::Index i = 0; i < std::ssize(fleet.devices().devices); ++i) {
      places_.emplace_back();
      for (const PlacedJob* job : fleet.node(i).jobs) {
        int64_t end = kUnlimited;
        if (job->stopping || job->end.known()) {
          end = std::max(now_us, job->stopping ? 0 : job->end.*field);
        }
        add(i, {end, job->bytes, job->threads, job->exclusive, &job->mapped});
      }
      if (fleet.node(i).usable) list(i);
    }
  }

  struct Start {
    int64_t time_us = kUnlimited, end_us = kUnlimited;
    std::vector<Fleet::Index> devices;
  };
  /// Returns the earliest start of the job on devices of this kind.
  Start find(const WaitingJob& job, DeviceKind kind) const {
    Start best;
    const auto count = static_cast<size_t>(Room::count_of(job, kind));
    for (const Fleet::Model& model : fleet_.models()) {
      if (model.kind != kind ||
          std::cmp_less(fleet_.usable(model, job.asked, job.project), count)) {
        continue;
      }
      const auto found = soonest(model, job, count);
      if (found.size() < count || found.back().first >= best.time_us) continue;
      best.time_us = found.back().first;
      best.devices.clear();
      for (const auto& [time, device] : found) best.devices.push_back(device);
    }
    if (best.devices.empty()) return best;
    best.time_us =
        std::max(best.time_us, in_retry_pause(job, now_us_) ? job.retry_time_us : now_us_);
    const Range& rest = job.on(kind).rest;
    if (rest.known()) best.end_us = best.time_us + rest.*field_;
    return best;
  }
  void take(const WaitingJob& job, DeviceKind kind, const Start& start) {
    for (const Fleet::Index i : start.devices) {
      unlist(i);
      add(i, {start.end_us, job.on(kind).bytes, job.asked.threads, job.asked.exclusive,
              mapped_by(job, kind)});
      list(i);
    }
  }

 private:
  struct Stay {
    int64_t end_us;
    int64_t bytes;  // after add(), includes the overhead of its process
    int32_t threads;
    bool exclusive;
    const MappedFileBrief* mapped;
  };
  struct Place {
    int64_t least_us = 0;     // before this time no further job fits
    std::vector<Stay> stays;  // sorted by end
    // Sums over all stays.
    int64_t bytes = 0;
    int64_t threads = 0;
    int exclusive = 0;
  };

  void add(Fleet::Index i, Stay stay) {
    const Device& d = fleet_.device(i);
    Place& place = places_[static_cast<size_t>(i)];
    stay.threads = std::min(stay.threads, fleet_.node(i).cores);
    if (d.memory_bytes > 0) stay.bytes += d.overhead_bytes;
    place.bytes += stay.bytes;
    place.threads += stay.threads;
    place.exclusive += static_cast<int>(stay.exclusive);
    place.stays.insert(std::ranges::upper_bound(place.stays, stay.end_us, {}, &Stay::end_us), stay);
  }
  static const MappedFileBrief* mapped_by(const WaitingJob& job, DeviceKind kind) {
    static const MappedFileBrief none;
    return kind == DeviceKind::kCpu ? &job.asked.mapped : &none;
  }
  /// Returns the bytes of the files that the job and the stays have mapped, each counted once.
  static int64_t mapped_bytes(const MappedFileBrief& mapped, std::span<const Stay> stays) {
    int64_t bytes = mapped.bytes;
    for (size_t i = 0; i < stays.size(); ++i) {
      const MappedFileBrief& one = *stays[i].mapped;
      if (one.bytes == 0 || one == mapped) continue;
      const bool is_counted = std::ranges::any_of(
          stays.first(i), [&](const Stay& before) { return *before.mapped == one; });
      if (!is_counted) bytes += one.bytes;
    }
    return bytes;
  }
  /// Returns the `count` devices of the model on which the job fits first, sorted by time.
  std::vector<std::pair<int64_t, Fleet::Index>> soonest(const Fleet::Model& model,
                                                        const WaitingJob& job, size_t count) const {
    std::vector<std::pair<int64_t, Fleet::Index>> found;
    for (const size_t group : model.groups) {
      if (!fleet_.groups()[group].suits(model.kind, job.asked, job.project)) continue;
      int checked = 0;
      for (const auto& [least, device] : first_[group]) {
        const bool enough = found.size() == count;
        if (++checked > kDevicesMax || (enough && least >= found.back().first)) break;
        const std::pair entry{fit_time(device, job, model.kind), device};
        if (entry.first == kUnlimited || (enough && entry >= found.back())) continue;
        if (enough) found.pop_back();
        found.insert(std::ranges::upper_bound(found, entry), entry);
      }
    }
    return found;
  }
  // Returns when the job fits on the device. Walks the stays in the order of their ends until
  // enough of them have ended.
  int64_t fit_time(Fleet::Index i, const WaitingJob& job, DeviceKind kind) const {
    const Fleet::Node& node = fleet_.node(i);
    const Device& d = fleet_.device(i);
    const Place& place = places_[static_cast<size_t>(i)];
    const std::span<const Stay> stays = place.stays;
    const MappedFileBrief& mapped = *mapped_by(job, kind);
    const bool has_limit = d.memory_bytes > 0;
    // The amounts that must become free.
    int64_t bytes = !has_limit ? 0 : place.bytes + job.on(kind).bytes - node.idle_bytes;
    int64_t threads = place.threads + std::min(job.asked.threads, node.cores) - node.cores;
    int64_t slots = std::ssize(place.stays) + 1 - d.slots;
    if (job.asked.exclusive) slots = std::max(slots, std::ssize(place.stays));
    int alone = place.exclusive;
    int64_t time = now_us_;
    const auto has_bytes = [&](size_t gone) {
      return !has_limit || bytes + mapped_bytes(mapped, stays.subspan(gone)) <= 0;
    };
    for (size_t gone = 0; gone < stays.size(); ++gone) {
      const Stay& s = stays[gone];
      if (threads <= 0 && slots <= 0 && alone == 0 && has_bytes(gone)) return time;
      if (s.end_us == kUnlimited) return kUnlimited;
      time = s.end_us;
      bytes -= s.bytes;
      threads -= s.threads;
      --slots;
      alone -= static_cast<int>(s.exclusive);
    }
    return threads <= 0 && slots <= 0 && has_bytes(stays.size()) ? time : kUnlimited;
  }
  void list(Fleet::Index i) {
    Place& place = places_[static_cast<size_t>(i)];
    // Only the number of slots is the same for every job. Whether memory and cores suffice depends
    // on the job, so they are ignored here.
    place.least_us = now_us_;
    const auto slots = static_cast<size_t>(std::max(1, fleet_.device(i).slots));
    if (place.stays.size() >= slots) {
      place.least_us = place.stays[place.stays.size() - slots].end_us;
    }
    first_[static_cast<size_t>(fleet_.node(i).group)].emplace(place.least_us, i);
  }
  void unlist(Fleet::Index i) {
    const bool was_listed = first_[static_cast<size_t>(fleet_.node(i).group)].erase(
                                {places_[static_cast<size_t>(i)].least_us, i}) == 1;
    TRAINYARD_CHECK(was_listed, "a job is expected to start on " + fleet_.device(i).name +
                                    ", which is not listed as free");
  }

  const Fleet& fleet_;
  const Field field_;
  const int64_t now_us_;
  std::vector<Place> places_;
  std::vector<std::set<std::pair<int64_t, Fleet::Index>>> first_;  // by group
};

// Chooses the kind of device like decide(), which runs again whenever something becomes free: the
// CPU if it is free no later than a GPU and the job ends there first, otherwise a GPU.
Future::Start choose(const WaitingJob& job, const Fleet& fleet, const Future& future,
                     DeviceKind& kind) {
  kind = kind_by_rule(job.asked, fleet.kinds(job.asked, job.project));
  Future::Start start = future.find(job, kind);
  const bool weighed = job.asked.wish == DeviceWish::kAuto && !job.asked.kind_before &&
                       kind == DeviceKind::kGpu && job.on_cpu.rest.known() &&
                       job.on_gpu.rest.known();
  if (!weighed || start.end_us == kUnlimited) return start;
  Future::Start on_cpu = future.find(job, DeviceKind::kCpu);
  if (on_cpu.time_us > start.time_us || on_cpu.end_us >= start.end_us) return start;
  kind = DeviceKind::kCpu;
  return on_cpu;
}

}  // namespace

std::vector<Projected> project(const Queue& queue, const Fleet& fleet, const Shares& shares,
                               int64_t now_us, size_t count_max, std::string_view last_uid,
                               const Quotas& quotas) {
  const std::vector<const WaitingJob*> jobs = in_order(queue, shares, now_us, count_max, last_uid);
  std::vector<Projected> projected(jobs.size());
  std::vector<bool> held(jobs.size());
  for (size_t j = 0; j < jobs.size(); ++j) {
    projected[j].uid = jobs[j]->uid;
    held[j] = quotas.find_exceeded(jobs[j]->quota_need()) != nullptr;
  }
  for (const Field field : {&Range::low_us, &Range::likely_us, &Range::high_us}) {
    Future future(fleet, field, now_us);
    for (size_t j = 0; j < jobs.size(); ++j) {
      if (held[j]) continue;
      DeviceKind kind;
      const Future::Start start = choose(*jobs[j], fleet, future, kind);
      future.take(*jobs[j], kind, start);
      Projected& to = projected[j];
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
      // The three projections are independent, so a job may start earlier in a slower one. This
      // restores low <= likely <= high.
      range->low_us = std::min(range->low_us, range->likely_us);
      range->high_us = std::max(range->high_us, range->likely_us);
    }
  }
  return projected;
}

void WaitReasons::take_projection(const Queue& queue, const Fleet& fleet, const Shares& shares,
                                  int64_t now_us) {
  constexpr size_t kBeforeMax = 64;  // reserved jobs are the first of the queue that find no room
  for (Reservation& r : reservations) {
    if (r.time_us == kUnlimited) continue;
    const std::vector<Projected> jobs =
        project(queue, fleet, shares, now_us, kBeforeMax, r.uid, quotas);
    // Without a forecast the projection knows no time, but a time limit may have given one.
    if (jobs.empty() || jobs.back().uid != r.uid || !jobs.back().start.known()) continue;
    r.time_us = jobs.back().start.high_us;
  }
}

}  // namespace trainyard::server
