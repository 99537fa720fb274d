#include "server/scheduler/room.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "src/base/check.h"

namespace trainyard::server {
namespace {

/// No job is preempted for devices that become free by themselves within this time.
constexpr int64_t kPreemptGainUs = 60'000'000;
/// A search ends after skipping this many devices that have room but are reserved.
constexpr int kPassedMax = 64;
/// The largest number of devices per group whose jobs are compared as victims, in the order of the
/// inventory.
constexpr int kVictimDevicesMax = 512;

int64_t upper_end_of(const WaitingJob& job, DeviceKind kind, int64_t now_us) {
  const int64_t rest_us = job.upper_rest_us(kind);
  return rest_us == kUnlimited ? kUnlimited : now_us + rest_us;
}

}  // namespace

Room::Room(Fleet& fleet, const Policy& policy, int64_t now_us)
    : fleet_(fleet), policy_(policy), now_us_(now_us), groups_(fleet.groups().size()) {}

Room::~Room() {
  try {
    give_back();
  } catch (const std::exception&) {
    // decide() has already restored the fleet, unless another exception is being handled.
  }
}

void Room::give_back() {
  while (!taken_.empty()) {
    const std::string uid = std::move(taken_.back());
    taken_.pop_back();
    fleet_.remove(uid);
  }
}

Fleet::Ask Room::ask_of(const WaitingJob& job, DeviceKind kind) {
  return {job.on(kind).bytes, job.asked.threads, job.asked.exclusive,
          kind == DeviceKind::kCpu ? job.asked.mapped : MappedFileBrief()};
}
int32_t Room::count_of(const WaitingJob& job, DeviceKind kind) { return job.asked.count_of(kind); }

bool Room::suits(size_t group, DeviceKind kind, const WaitingJob& job) const {
  return fleet_.groups()[group].suits(kind, job.asked, job.project);
}

std::vector<size_t> Room::groups_for(const Fleet::Model& model, const WaitingJob& job) const {
  std::vector<size_t> groups;
  for (const size_t group : model.groups) {
    if (suits(group, model.kind, job)) groups.push_back(group);
  }
  return groups;
}

// ---- Free room -----------------------------------------------------------------------------

bool Room::may_use(Fleet::Index device, const Fleet::Ask& ask, int64_t end_us) const {
  const int32_t of = groups_[static_cast<size_t>(fleet_.node(device).group)].reservation;
  if (of < 0) return true;
  const Reservation& r = reservations_[static_cast<size_t>(of)];
  if (r.time_us == kUnlimited) {
    return !fleet_.could_fit(device, r.ask) ||
           (end_us != kUnlimited && kept_until_us(device, r) <= now_us_);
  }
  const auto spare = std::ranges::find(r.devices, device, &Spare::device);
  return spare == r.devices.end() || end_us <= r.before_us || spare->holds(ask);
}

int64_t Room::kept_until_us(Fleet::Index device, const Reservation& r) const {
  const int64_t since_us = std::max(r.wait_since_us, fleet_.left_time_us(device));
  // The device is reserved for a limited time from `since_us` on. If the wall clock has jumped back
  // before `since_us`, the reservation ends now.
  return since_us > now_us_ ? now_us_ : since_us + policy_.reserved_idle_max_us;
}

bool Room::add_free(size_t group, const WaitingJob& job, int32_t count,
                    std::vector<Fleet::Key>& free) {
  const Fleet::Group& g = fleet_.groups()[group];
  const Fleet::Ask ask = ask_of(job, g.kind);
  GroupState& state = groups_[group];
  if (ask.bytes >= state.none_from_bytes) return false;
  const int64_t end_us = upper_end_of(job, g.kind, now_us_);
  int passed = 0;
  int32_t found = 0;
  auto it = g.free.lower_bound({0, ask.bytes, 0});
  while (it != g.free.end() && found < count && passed < kPassedMax) {
    if (it->room_bytes < ask.bytes) {  // skip to the devices with one more job
      it = g.free.lower_bound({it->jobs, ask.bytes, 0});
      continue;
    }
    if (ask.exclusive && it->jobs > 0) break;
    if (fleet_.fits(it->device, ask)) {
      if (may_use(it->device, ask, end_us)) {
        free.push_back(*it);
        ++found;
      } else {
        ++passed;
      }
    }
    ++it;
  }
  if (found == 0 && passed == 0 && count == 1 && !ask.exclusive && ask.threads == 1 &&
      ask.mapped.bytes == 0) {
    state.none_from_bytes = ask.bytes;
  }
  return passed > 0;
}

bool Room::find_in(const Fleet::Model& model, const WaitingJob& job, Found& found) {
  const int32_t count = count_of(job, model.kind);
  if (fleet_.usable(model, job.asked, job.project) < count) return false;
  std::vector<Fleet::Key> free;
  int32_t reservation = -1;
  for (const size_t group : model.groups) {
    if (!suits(group, model.kind, job)) continue;
    if (add_free(group, job, count, free)) reservation = groups_[group].reservation;
  }
  if (std::ssize(free) < count) {
    found.reservation = reservation;
    return false;
  }
  std::ranges::sort(free);
  for (int32_t i = 0; i < count; ++i) found.devices.push_back(free[static_cast<size_t>(i)].device);
  return true;
}

Room::Found Room::find(const WaitingJob& job, DeviceKind kind) {
  Found best;
  std::tuple<size_t, int64_t, Fleet::Index> best_key;
  for (const Fleet::Model& model : fleet_.models()) {
    if (model.kind != kind) continue;
    Found found;
    if (!find_in(model, job, found)) {
      if (best.devices.empty() && found.reservation >= 0) best.reservation = found.reservation;
      continue;
    }
    // The least suitable device of the result.
    const Fleet::Node& last = fleet_.node(found.devices.back());
    const std::tuple key{last.jobs.size(), last.room_bytes, found.devices.back()};
    if (!best.devices.empty() && best_key <= key) continue;
    best = std::move(found);
    best_key = key;
  }
  if (!best.devices.empty()) best.reservation = -1;
  return best;
}

void Room::take(const WaitingJob& job, const std::vector<Fleet::Index>& devices) {
  TRAINYARD_CHECK(fleet_.find(job.uid) == nullptr,
                  "job " + job.uid + " starts although its previous process still has devices");
  const DeviceKind kind = fleet_.device(devices.front()).kind;
  TRAINYARD_CHECK(std::ssize(devices) == count_of(job, kind),
                  "job " + job.uid + " needs " + std::to_string(count_of(job, kind)) +
                      " devices and starts on " + std::to_string(devices.size()));
  const Fleet::Ask ask = ask_of(job, kind);
  const int64_t end_us = upper_end_of(job, kind, now_us_);
  PlacedJob placed;
  placed.uid = job.uid;
  placed.name = job.name;
  placed.owner = job.owner;
  placed.project = job.project;
  placed.priority = job.priority;
  placed.bytes = ask.bytes;
  placed.threads = ask.threads;
  placed.mapped = ask.mapped;
  placed.exclusive = ask.exclusive;
  placed.start_time_us = placed.saved_time_us = now_us_;
  const Range& rest = job.on(kind).rest;
  if (rest.known()) {
    placed.end = {now_us_ + rest.low_us, now_us_ + rest.likely_us, now_us_ + rest.high_us};
  }
  if (job.rest_max_us != kUnlimited) placed.end_max_us = now_us_ + job.rest_max_us;
  for (const Fleet::Index i : devices) {
    placed.devices.push_back(fleet_.device(i).name);
    const int32_t of = groups_[static_cast<size_t>(fleet_.node(i).group)].reservation;
    if (of < 0) continue;
    Reservation& r = reservations_[static_cast<size_t>(of)];
    const auto spare = std::ranges::find(r.devices, i, &Spare::device);
    if (spare == r.devices.end() || end_us <= r.before_us) continue;
    TRAINYARD_CHECK(spare->holds(ask), "job " + job.uid + " takes resources reserved for job " +
                                           r.uid + " on " + fleet_.device(i).name);
    spare->bytes -= ask.bytes_alone() + fleet_.device(i).overhead_bytes;
    spare->cores -= std::min(ask.threads, spare->cores_all);
    --spare->slots;
  }
  taken_.push_back(job.uid);
  fleet_.place(std::move(placed));
}

// ---- Reservations --------------------------------------------------------------------------

// Returns when the job may use a device on which it fits at `time_us`, considering the reservation
// of the device's group.
int64_t Room::after_reserved(Fleet::Index device, const Fleet::Ask& ask, int64_t rest_us,
                             int64_t time_us) const {
  const int32_t of = groups_[static_cast<size_t>(fleet_.node(device).group)].reservation;
  if (of < 0 || time_us == kUnlimited) return time_us;
  const int64_t end_us = rest_us == kUnlimited ? kUnlimited : time_us + rest_us;
  if (may_use(device, ask, end_us)) return time_us;
  return std::max(time_us, reservation(of).end_us);
}

// Returns the devices of these groups, as many as the job requests, on which it fits first, sorted
// by time. Skips devices none of whose jobs ends before the latest time found so far.
std::vector<std::pair<int64_t, Fleet::Index>> Room::soonest(std::span<const size_t> groups,
                                                            const WaitingJob& job,
                                                            DeviceKind kind) const {
  const Fleet::Ask ask = ask_of(job, kind);
  const int32_t count = count_of(job, kind);
  const int64_t rest_us = job.upper_rest_us(kind);
  std::vector<std::pair<int64_t, Fleet::Index>> found, later;
  const auto full = [&] { return std::ssize(found) == count; };
  for (const size_t group : groups) {
    const Fleet::Group& g = fleet_.groups()[group];
    for (auto it = g.free.lower_bound({0, ask.bytes, 0}); it != g.free.end() && !full(); ++it) {
      if (!fleet_.fits(it->device, ask)) continue;
      const std::pair entry{after_reserved(it->device, ask, rest_us, now_us_), it->device};
      if (entry.first < kUnlimited) (entry.first == now_us_ ? found : later).push_back(entry);
    }
  }
  if (full()) return found;
  std::ranges::make_heap(found);  // max-heap: the latest time on top
  const auto add = [&](const std::pair<int64_t, Fleet::Index>& entry) {
    if (entry.first == kUnlimited || (full() && entry >= found.front())) return;
    if (full()) {
      std::ranges::pop_heap(found);
      found.pop_back();
    }
    found.push_back(entry);
    std::ranges::push_heap(found);
  };
  for (const auto& entry : later) add(entry);
  for (const size_t group : groups) {
    for (const Fleet::Index i : fleet_.groups()[group].members) {
      const int64_t least_us = full() ? found.front().first : kUnlimited;
      if (fleet_.next_end_us(i) >= least_us || fleet_.fits(i, ask)) continue;
      add({after_reserved(i, ask, rest_us, fleet_.fit_time(i, ask, now_us_)), i});
    }
  }
  std::ranges::sort(found);
  return found;
}

Room::FitTime Room::fit_time(const WaitingJob& job, DeviceKind kind) const {
  const int32_t count = count_of(job, kind);
  FitTime first;
  for (const Fleet::Model& model : fleet_.models()) {
    if (model.kind != kind || fleet_.usable(model, job.asked, job.project) < count) continue;
    const std::vector<size_t> groups = groups_for(model, job);
    const auto found = soonest(groups, job, kind);
    if (std::ssize(found) < count || found.back().first >= first.time_us) continue;
    first.time_us = found.back().first;
    first.behind = -1;
    for (const size_t group : groups) {
      const int32_t of = groups_[group].reservation;
      if (of >= 0 && reservation(of).end_us == first.time_us) first.behind = of;
    }
  }
  return first;
}

Spare Room::spare_at(Fleet::Index device, const Fleet::Ask& ask, int64_t time_us,
                     const std::vector<const PlacedJob*>& leaving) const {
  const Device& d = fleet_.device(device);
  const Fleet::Node& node = fleet_.node(device);
  const auto cores = [&](int32_t threads) { return std::min(threads, node.cores); };
  Spare spare{device,      node.idle_bytes - ask.bytes,
              d.slots - 1, node.cores - cores(ask.threads),
              node.cores,  ask.exclusive};
  if (d.memory_bytes > 0) spare.bytes -= d.overhead_bytes;
  std::vector<const PlacedJob*> remaining;
  for (const PlacedJob* job : node.jobs) {
    if (std::ranges::find(leaving, job) != leaving.end()) continue;
    if (Fleet::upper_end(*job, now_us_) <= time_us) continue;
    remaining.push_back(job);
    if (d.memory_bytes > 0) spare.bytes -= job->bytes + d.overhead_bytes;
    spare.cores -= cores(job->threads);
    --spare.slots;
  }
  if (d.memory_bytes > 0) {
    spare.bytes -=
        Fleet::mapped_bytes(remaining) + Fleet::bytes_beside({.mapped = ask.mapped}, remaining);
  }
  // `bytes` is the room for one more plan; that plan's process overhead is already subtracted.
  return spare;
}

int64_t Room::before_of(const Reservation& r) const {
  int64_t last_us = now_us_;
  bool overdue = false;
  for (const Spare& spare : r.devices) {
    for (const PlacedJob* job : fleet_.node(spare.device).jobs) {
      const int64_t end_us = Fleet::upper_end(*job, now_us_);
      if (end_us > r.time_us) continue;  // it keeps running next to the reserved job
      if (Fleet::upper_forecast(*job) <= now_us_) {
        overdue = true;
      } else {
        last_us = std::max(last_us, end_us);
      }
    }
  }
  return overdue ? last_us : r.time_us;
}

bool Room::may_reserve(const WaitingJob& job, DeviceKind kind) const {
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (suits(group, kind, job) && groups_[group].reservation < 0) return true;
  }
  return false;
}

std::vector<std::vector<size_t>> Room::open_groups(const WaitingJob& job, DeviceKind kind,
                                                   int32_t& others) const {
  const int32_t count = count_of(job, kind);
  const int64_t bytes = ask_of(job, kind).bytes_alone();
  std::vector<std::vector<size_t>> open;
  for (const Fleet::Model& model : fleet_.models()) {
    if (model.kind != kind || fleet_.soon(model, job.asked, job.project) < count) continue;
    std::vector<size_t> groups;
    for (const size_t group : groups_for(model, job)) {
      if (groups_[group].reservation >= 0) {
        others = groups_[group].reservation;
      } else {
        groups.push_back(group);
      }
    }
    if (fleet_.could_fit_together(groups, count, bytes)) open.push_back(std::move(groups));
  }
  return open;
}

void Room::keep(size_t group, int32_t id) {
  const int32_t of = groups_[group].reservation;
  TRAINYARD_CHECK(of < 0 || of == id, "reservation " + std::to_string(id) +
                                          " takes devices of reservation " + std::to_string(of));
  groups_[group].reservation = id;
}

int32_t Room::reserve(const WaitingJob& job, DeviceKind kind) {
  const int32_t count = count_of(job, kind);
  const Fleet::Ask ask = ask_of(job, kind);
  Reservation r;
  r.uid = job.uid;
  r.name = job.name;
  r.project = job.project;
  r.owner = job.owner;
  r.priority = job.priority;
  r.order = job.order;
  r.wait_since_us = job.wait_since_us;
  r.kind = kind;
  r.ask = ask;
  r.time_us = kUnlimited;
  int32_t others = -1;
  const std::vector<std::vector<size_t>> open = open_groups(job, kind, others);
  if (open.empty()) return others;

  std::vector<std::pair<int64_t, Fleet::Index>> devices;
  for (const std::vector<size_t>& groups : open) {
    const auto found = soonest(groups, job, kind);
    if (std::ssize(found) < count || found.back().first >= r.time_us) continue;
    r.time_us = found.back().first;
    devices = found;
  }
  const auto id = static_cast<int32_t>(reservations_.size());
  if (r.time_us <= now_us_ + kPreemptGainUs || !preempt(job, kind, r)) {
    for (const auto& [time, device] : devices) {
      r.devices.push_back(spare_at(device, ask, r.time_us, {}));
    }
  }
  r.before_us = before_of(r);
  const Range& rest = job.on(kind).rest;
  if (r.time_us != kUnlimited && rest.known()) r.end_us = r.time_us + rest.likely_us;
  for (const Spare& spare : r.devices) {
    keep(static_cast<size_t>(fleet_.node(spare.device).group), id);
  }
  // Without a time, the job will take whatever becomes free first, so all groups are reserved.
  if (r.time_us == kUnlimited) {
    for (const std::vector<size_t>& groups : open) {
      for (const size_t group : groups) {
        keep(group, id);
        for (const Fleet::Index i : fleet_.groups()[group].members) {
          const int64_t until_us = kept_until_us(i, r);
          if (until_us > now_us_) wake_at(until_us);
        }
      }
    }
  }
  reservations_.push_back(std::move(r));
  return id;
}

// ---- Preemption ----------------------------------------------------------------------------

void Room::wake_at(int64_t time_us) {
  if (wake_time_us_ == 0 || time_us < wake_time_us_) wake_time_us_ = time_us;
}

bool Room::find_victims(const WaitingJob& job, const Fleet::Ask& ask, Victims& victims) {
  const Fleet::Node& node = fleet_.node(victims.device);
  if (!node.usable || !fleet_.could_fit(victims.device, ask)) return false;
  if (fleet_.fits(victims.device, ask)) return true;
  std::vector<const PlacedJob*> may;
  for (const PlacedJob* other : node.jobs) {
    if (other->stopping || other->priority >= job.priority) continue;
    const int64_t ripe_us = other->start_time_us + policy_.preempt_after_us;
    if (!other->running || ripe_us > now_us_) {
      // A starting job triggers a pass by itself when its state changes.
      if (other->running) wake_at(ripe_us);
      continue;
    }
    if (Fleet::upper_end(*other, now_us_) <= now_us_ + kPreemptGainUs) continue;
    may.push_back(other);
  }
  const auto lost_us = [&](const PlacedJob& other) {
    return static_cast<double>(now_us_ - other.saved_time_us) *
           static_cast<double>(other.devices.size());
  };
  std::ranges::sort(may, [&](const PlacedJob* a, const PlacedJob* b) {
    return std::tuple(a->priority, lost_us(*a), -a->start_time_us, std::string_view(a->uid)) <
           std::tuple(b->priority, lost_us(*b), -b->start_time_us, std::string_view(b->uid));
  });
  const auto fits_without = [&](const std::vector<const PlacedJob*>& gone) {
    // Jobs that end within kPreemptGainUs anyway also count as ended.
    const Spare spare = spare_at(victims.device, ask, now_us_ + kPreemptGainUs, gone);
    const bool alone = spare.slots + 1 == fleet_.device(victims.device).slots;
    const bool taken = std::ranges::any_of(node.jobs, [&](const PlacedJob* other) {
      return other->exclusive && std::ranges::find(gone, other) == gone.end() &&
             Fleet::upper_end(*other, now_us_) > now_us_ + kPreemptGainUs;
    });
    const int64_t overhead = fleet_.device(victims.device).memory_bytes > 0
                                 ? fleet_.device(victims.device).overhead_bytes
                                 : 0;
    return !taken && spare.bytes + overhead >= 0 && spare.slots >= 0 && spare.cores >= 0 &&
           (!ask.exclusive || alone);
  };
  std::vector<const PlacedJob*> gone;
  for (const PlacedJob* other : may) {
    if (fits_without(gone)) break;
    gone.push_back(other);
  }
  if (!fits_without(gone)) return false;
  // Spares victims whose removal turned out not to be needed.
  for (size_t i = gone.size(); i-- > 0;) {
    std::vector<const PlacedJob*> fewer = gone;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (fits_without(fewer)) gone = std::move(fewer);
  }
  victims.priority_max = std::numeric_limits<int32_t>::min();
  for (const PlacedJob* other : gone) {
    victims.priority_max = std::max(victims.priority_max, other->priority);
    victims.lost_us += lost_us(*other);
  }
  victims.jobs = std::move(gone);
  return true;
}

std::vector<Room::Victims> Room::victims_in(const Fleet::Model& model, const WaitingJob& job,
                                            const Fleet::Ask& ask) {
  const int32_t count = count_of(job, model.kind);
  std::vector<Victims> found;
  int32_t usable = 0;
  std::vector<size_t> groups = groups_for(model, job);
  std::erase_if(groups, [&](size_t group) { return groups_[group].reservation >= 0; });
  for (const size_t group : groups) usable += fleet_.groups()[group].usable;
  if (usable < count) return found;
  int checked = 0;
  for (const size_t group : groups) {
    for (const Fleet::Index i : fleet_.groups()[group].members) {
      const Fleet::Node& node = fleet_.node(i);
      const bool lower = node.start_min_us != kUnlimited && node.priority_min < job.priority;
      if (!lower && !fleet_.fits(i, ask)) continue;
      const int64_t ripe_us = node.start_min_us + policy_.preempt_after_us;
      if (lower && ripe_us > now_us_) {
        wake_at(ripe_us);
        if (!fleet_.fits(i, ask)) continue;
      }
      if (++checked > kVictimDevicesMax) break;
      Victims victims{i, 0, 0, {}};
      if (find_victims(job, ask, victims)) found.push_back(std::move(victims));
    }
  }
  if (std::ssize(found) < count) found.clear();
  return found;
}

bool Room::preempt(const WaitingJob& job, DeviceKind kind, Reservation& reservation) {
  if (policy_.preemption != Preemption::kPriority) return false;
  const int32_t count = count_of(job, kind);
  std::vector<Victims> best;
  const auto cost = [](const Victims& v) {
    return std::tuple(v.jobs.empty() ? std::numeric_limits<int32_t>::min() : v.priority_max,
                      v.lost_us, v.device);
  };
  for (const Fleet::Model& model : fleet_.models()) {
    if (model.kind != kind) continue;
    std::vector<Victims> found = victims_in(model, job, reservation.ask);
    if (found.empty()) continue;
    std::ranges::partial_sort(found, found.begin() + count, {}, cost);
    found.resize(static_cast<size_t>(count));
    if (best.empty() || cost(found.back()) < cost(best.back())) best = std::move(found);
  }
  if (best.empty()) return false;
  std::vector<const PlacedJob*> all;
  for (const Victims& v : best) {
    for (const PlacedJob* other : v.jobs) {
      if (std::ranges::find(all, other) == all.end()) all.push_back(other);
    }
  }
  reservation.time_us = now_us_ + kPreemptGainUs;
  for (const Victims& v : best) {
    reservation.devices.push_back(spare_at(v.device, reservation.ask, reservation.time_us, all));
  }
  for (const PlacedJob* other : all) {
    const bool same = other->project == job.project;
    if (same) {
      reservation.makes_room.names.push_back(other->name);
    } else {
      ++reservation.makes_room.others;
    }
    preempts_.push_back({other->uid, job.uid, same ? job.name : std::string()});
  }
  return true;
}

}  // namespace trainyard::server
