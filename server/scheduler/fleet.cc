#include "server/scheduler/fleet.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "src/base/check.h"

namespace trainyard::server {
namespace {

/// A job that was requested to stop is expected to end after kStoppingUs. A job that has exceeded
/// its forecast is expected to end after kOverdueUs or a tenth of its run time, whichever is
/// longer.
constexpr int64_t kStoppingUs = 10'000'000;
constexpr int64_t kOverdueUs = 60'000'000;

bool same_places(const std::vector<Device>& a, const std::vector<Device>& b) {
  return std::ranges::equal(a, b, [](const Device& x, const Device& y) {
    return x.name == y.name && x.kind == y.kind && alike(x) == alike(y);
  });
}

int32_t threads_on(const Fleet::Node& node, int32_t threads) {
  return std::min(threads, node.cores);  // a job with more threads than cores occupies all cores
}

int64_t expected_end(int64_t end_us, int64_t start_us, int64_t now_us) {
  if (end_us == 0) return now_us + kStoppingUs;
  if (end_us > now_us) return end_us;
  return now_us + std::max(kOverdueUs, (now_us - start_us) / 10);
}

bool has_room(const Fleet::Node& node, const Fleet::Ask& ask) {
  return node.usable && !node.taken && node.slots > 0 &&
         node.room_bytes >= Fleet::bytes_beside(ask, node.jobs) &&
         (!ask.exclusive || node.jobs.empty()) &&
         (node.cores == 0 || threads_on(node, ask.threads) <= node.cores_free);
}

}  // namespace

void Fleet::set_devices(Devices devices) {
  const bool same = same_places(devices.devices, devices_.devices);
  devices_ = std::move(devices);
  by_name_.clear();
  for (size_t i = 0; i < devices_.devices.size(); ++i) {
    by_name_.emplace(devices_.devices[i].name, static_cast<Index>(i));
  }
  if (!same) rebuild();
  note_idle_bytes();
}

void Fleet::set_project_devices(ProjectDevices lists) {
  if (lists == project_devices_) return;
  project_devices_ = std::move(lists);
  const std::vector<int64_t> left_times_us = left_times_us_;
  rebuild();
  left_times_us_ = left_times_us;
  note_idle_bytes();
}

void Fleet::note_idle_bytes() {
  for (Group& group : groups_) group.idle_bytes.clear();
  for (Index i = 0; i < std::ssize(nodes_); ++i) {
    refresh(i);
    const Node& node = this->node(i);
    if (!node.soon) continue;
    groups_[static_cast<size_t>(node.group)].idle_bytes.push_back(node.usable ? node.idle_bytes
                                                                              : kUnlimited);
  }
  for (Group& group : groups_) std::ranges::sort(group.idle_bytes, std::greater());
}

void Fleet::rebuild() {
  nodes_.assign(devices_.devices.size(), {});
  keys_.assign(nodes_.size(), Key{-1, 0, 0});
  next_ends_us_.assign(nodes_.size(), kUnlimited);
  left_times_us_.assign(nodes_.size(), 0);
  groups_.clear();
  models_.clear();
  using Excluded = std::set<std::string, std::less<>>;
  std::map<std::pair<DeviceKind, std::string>, size_t> models;
  std::map<std::pair<size_t, Excluded>, int32_t> known;
  for (Index i = 0; i < std::ssize(nodes_); ++i) {
    const Device& d = device(i);
    const size_t model = models.try_emplace({d.kind, alike(d)}, models_.size()).first->second;
    if (model == models_.size()) models_.push_back({d.kind, {}});
    Excluded excluded;
    for (const auto& [project, list] : project_devices_) {
      if (!may_use(project_devices_, project, d.name, d.kind)) excluded.insert(project);
    }
    const auto [group, fresh] =
        known.try_emplace({model, excluded}, static_cast<int32_t>(groups_.size()));
    if (fresh) {
      models_[model].groups.push_back(groups_.size());
      groups_.emplace_back();
      groups_.back().kind = d.kind;
      groups_.back().model = model;
      groups_.back().excluded = std::move(excluded);
    }
    Group& of = groups_[static_cast<size_t>(group->second)];
    of.members.push_back(i);
    of.has_bf16 = of.has_bf16 && has_bf16(d);
    nodes_[static_cast<size_t>(i)].group = group->second;
  }
  for (auto& [uid, placed] : placed_) attach(*placed);
}

void Fleet::attach(Placed& placed) {
  placed.at.clear();
  for (const std::string& name : placed.job.devices) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) continue;  // the device no longer exists
    placed.at.push_back(found->second);
    Node& node = nodes_[static_cast<size_t>(found->second)];
    node.jobs.push_back(&placed.job);
  }
}

void Fleet::detach(const Placed& placed) {
  for (const Index i : placed.at) {
    Node& node = nodes_[static_cast<size_t>(i)];
    const bool was_there = std::erase(node.jobs, &placed.job) == 1;
    TRAINYARD_CHECK(was_there, "job " + placed.job.uid + " is not on " + device(i).name);
  }
}

void Fleet::place(PlacedJob job) {
  remove(job.uid);
  for (auto name = job.devices.begin(); name != job.devices.end(); ++name) {
    TRAINYARD_CHECK(std::find(name + 1, job.devices.end(), *name) == job.devices.end(),
                    "job " + job.uid + " has the device " + *name + " twice");
  }
  job.end = bounded(job.end, job.end_max_us);
  auto placed = std::make_unique<Placed>(Placed{std::move(job), {}});
  attach(*placed);
  for (const Index i : placed->at) refresh(i);
  const std::string_view uid = placed->job.uid;
  const bool is_new = placed_.emplace(uid, std::move(placed)).second;
  TRAINYARD_CHECK(is_new, "job " + std::string(uid) + " is placed twice");
}

void Fleet::remove(std::string_view uid) {
  const auto found = placed_.find(uid);
  if (found == placed_.end()) return;
  // `uid` may refer to the string in the job itself
  const std::unique_ptr<Placed> placed = std::move(found->second);
  placed_.erase(found);
  detach(*placed);
  for (const Index i : placed->at) refresh(i);
}

void Fleet::leave(std::string_view uid, int64_t now_us) {
  const auto found = placed_.find(uid);
  if (found == placed_.end()) return;
  for (const Index i : found->second->at) left_times_us_[static_cast<size_t>(i)] = now_us;
  remove(uid);
}

void Fleet::clear_jobs() {
  while (!placed_.empty()) remove(placed_.begin()->first);
}

const PlacedJob* Fleet::find(std::string_view uid) const {
  const auto found = placed_.find(uid);
  return found == placed_.end() ? nullptr : &found->second->job;
}

std::span<const PlacedJob* const> Fleet::jobs_on(std::string_view device) const {
  const auto found = by_name_.find(device);
  if (found == by_name_.end()) return {};
  return node(found->second).jobs;
}

std::span<const Fleet::Index> Fleet::devices_of(const PlacedJob& job) const {
  const auto found = placed_.find(job.uid);
  if (found == placed_.end()) return {};
  return found->second->at;
}

void Fleet::refresh(Index i) {
  const Device& d = device(i);
  Node& node = nodes_[static_cast<size_t>(i)];
  Group& group = groups_[static_cast<size_t>(node.group)];
  const bool usable = d.schedulable && d.slots > 0;
  const bool soon = usable || d.checking || d.busy;
  group.usable += static_cast<int>(usable) - static_cast<int>(node.usable);
  group.soon += static_cast<int>(soon) - static_cast<int>(node.soon);
  TRAINYARD_CHECK(0 <= group.usable && group.usable <= group.soon &&
                      std::cmp_less_equal(group.soon, group.members.size()),
                  "of " + std::to_string(group.members.size()) + " devices of the model of " +
                      d.name + ", " + std::to_string(group.usable) + " are usable and " +
                      std::to_string(group.soon) + " will be usable soon");
  node.usable = usable;
  node.soon = soon;
  node.slots = d.slots - static_cast<int32_t>(node.jobs.size());
  node.idle_bytes =
      d.memory_bytes == 0 ? kUnlimited : d.memory_bytes - d.others_bytes - d.overhead_bytes;
  node.room_bytes = node.idle_bytes;
  node.cores = d.kind == DeviceKind::kCpu ? d.cores : 0;
  node.cores_free = node.cores;
  node.taken = false;
  node.priority_min = std::numeric_limits<int32_t>::max();
  node.start_min_us = kUnlimited;
  node.stays.clear();
  if (d.memory_bytes > 0) node.room_bytes -= mapped_bytes(node.jobs);
  for (const PlacedJob* job : node.jobs) {
    if (d.memory_bytes > 0) node.room_bytes -= job->bytes + d.overhead_bytes;
    node.cores_free -= threads_on(node, job->threads);
    node.taken |= job->exclusive;
    node.stays.push_back({upper_forecast(*job), job->start_time_us,
                          job->bytes + (d.memory_bytes > 0 ? d.overhead_bytes : 0),
                          threads_on(node, job->threads), job->exclusive, job});
    if (job->stopping || !job->running) continue;
    node.priority_min = std::min(node.priority_min, job->priority);
    node.start_min_us = std::min(node.start_min_us, job->start_time_us);
  }
  std::ranges::sort(node.stays, {}, &Stay::end_us);
  next_ends_us_[static_cast<size_t>(i)] =
      node.stays.empty() ? kUnlimited : node.stays.front().end_us;
  Key& key = keys_[static_cast<size_t>(i)];
  Key now{-1, 0, 0};
  if (has_room(node, Ask{})) now = {static_cast<int32_t>(node.jobs.size()), node.room_bytes, i};
  if (now == key) return;
  if (key.jobs >= 0) {
    const bool was_free = group.free.erase(key) == 1;
    TRAINYARD_CHECK(was_free, d.name + " is missing from the list of devices with room");
  }
  if (now.jobs >= 0) group.free.insert(now);
  key = now;
}

bool Fleet::allows_kind(DeviceKind kind, std::string_view project) const {
  return std::ranges::any_of(
      groups_, [&](const Group& g) { return g.kind == kind && !g.excludes(project); });
}

int32_t Fleet::usable(const Model& model, const DeviceRequest& asked,
                      std::string_view project) const {
  int32_t count = 0;
  for (const size_t i : model.groups) {
    if (groups_[i].suits(model.kind, asked, project)) count += groups_[i].usable;
  }
  return count;
}
int32_t Fleet::soon(const Model& model, const DeviceRequest& asked,
                    std::string_view project) const {
  int32_t count = 0;
  for (const size_t i : model.groups) {
    if (groups_[i].suits(model.kind, asked, project)) count += groups_[i].soon;
  }
  return count;
}

bool Fleet::has_kind(DeviceKind kind, const DeviceRequest& asked, std::string_view project) const {
  return std::ranges::any_of(models_, [&](const Model& m) {
    return m.kind == kind && usable(m, asked, project) >= asked.count_of(kind);
  });
}
bool Fleet::will_have_kind(DeviceKind kind, const DeviceRequest& asked,
                           std::string_view project) const {
  return std::ranges::any_of(models_, [&](const Model& m) {
    return m.kind == kind && soon(m, asked, project) >= asked.count_of(kind);
  });
}

Fleet::Kinds Fleet::kinds(const DeviceRequest& asked, std::string_view project) const {
  const bool waits_for_gpu = find_list(project_devices_, project) != nullptr &&
                             allows_kind(DeviceKind::kGpu, project) &&
                             !allows_kind(DeviceKind::kCpu, project);
  return {will_have_kind(DeviceKind::kCpu, asked, project),
          waits_for_gpu || will_have_kind(DeviceKind::kGpu, asked, project)};
}

bool Fleet::could_fit_together(std::span<const size_t> groups, int32_t count, int64_t bytes) const {
  int64_t found = 0;
  for (const size_t i : groups) found += groups_[i].could_fit(bytes);
  return found >= count;
}
bool Fleet::could_fit_together(const Model& model, const DeviceRequest& asked,
                               std::string_view project, int64_t bytes) const {
  int64_t found = 0;
  for (const size_t i : model.groups) {
    if (groups_[i].suits(model.kind, asked, project)) found += groups_[i].could_fit(bytes);
  }
  return found >= asked.count_of(model.kind);
}
bool Fleet::could_fit_together(DeviceKind kind, const DeviceRequest& asked,
                               std::string_view project, int64_t bytes) const {
  return std::ranges::any_of(models_, [&](const Model& m) {
    return m.kind == kind && could_fit_together(m, asked, project, bytes);
  });
}

int64_t Fleet::most_room(DeviceKind kind) const {
  int64_t most = -1;
  for (const Group& g : groups_) {
    if (g.kind != kind) continue;
    // The last entry for each number of jobs has the most room.
    for (auto it = g.free.end(); it != g.free.begin();) {
      --it;
      most = std::max(most, it->room_bytes);
      it = g.free.lower_bound({it->jobs, std::numeric_limits<int64_t>::min(), 0});
    }
  }
  return most;
}

bool Fleet::fits(Index i, const Ask& ask) const { return has_room(node(i), ask); }

bool Fleet::could_fit(Index i, const Ask& ask) const {
  return node(i).idle_bytes >= ask.bytes_alone();
}

int64_t Fleet::bytes_beside(const Ask& ask, std::span<const PlacedJob* const> jobs) {
  const bool is_there =
      ask.mapped.bytes == 0 ||
      std::ranges::any_of(jobs, [&](const PlacedJob* job) { return job->mapped == ask.mapped; });
  return is_there ? ask.bytes : ask.bytes_alone();
}

int64_t Fleet::mapped_bytes(std::span<const PlacedJob* const> jobs) {
  int64_t bytes = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Ask ask{.mapped = jobs[i]->mapped};
    bytes += bytes_beside(ask, jobs.first(i));
  }
  return bytes;
}

int64_t Fleet::upper_forecast(const PlacedJob& job) {
  if (job.stopping) return 0;
  return job.end.known() ? job.end.high_us : job.end_max_us;
}

int64_t Fleet::upper_end(const PlacedJob& job, int64_t now_us) {
  return expected_end(upper_forecast(job), job.start_time_us, now_us);
}

int64_t Fleet::fit_time(Index i, const Ask& ask, int64_t now_us) const {
  const Node& node = this->node(i);
  if (has_room(node, ask)) return now_us;
  if (!node.usable || !could_fit(i, ask)) return kUnlimited;
  std::span<const Stay> stays = node.stays;
  // Copy with corrected ends: overdue or stopping jobs may end after others.
  std::vector<Stay> moved;
  if (!stays.empty() && stays.front().end_us <= now_us) {
    moved = node.stays;
    for (Stay& s : moved) s.end_us = expected_end(s.end_us, s.start_us, now_us);
    std::ranges::sort(moved, {}, &Stay::end_us);
    stays = moved;
  }
  int64_t room_bytes = node.room_bytes;
  int32_t slots = node.slots, cores_free = node.cores_free;
  // Returns the bytes of a mapped file that no stay from `first` on shares.
  const auto unshared = [&](const MappedFileBrief& mapped, size_t first) -> int64_t {
    if (mapped.bytes == 0) return 0;
    const bool is_shared = std::ranges::any_of(
        stays.subspan(first), [&](const Stay& other) { return other.job->mapped == mapped; });
    return is_shared ? 0 : mapped.bytes;
  };
  auto alone = std::ranges::count(stays, true, &Stay::exclusive);
  const int32_t threads = threads_on(node, ask.threads);
  for (size_t gone = 0; gone < stays.size(); ++gone) {
    const Stay& s = stays[gone];
    if (s.end_us == kUnlimited) break;
    room_bytes += s.bytes + unshared(s.job->mapped, gone + 1);
    cores_free += s.threads;
    alone -= s.exclusive;
    ++slots;
    const bool has_bytes =
        device(i).memory_bytes == 0 || room_bytes >= ask.bytes + unshared(ask.mapped, gone + 1);
    if (alone == 0 && slots > 0 && has_bytes && (!ask.exclusive || gone + 1 == stays.size()) &&
        (node.cores == 0 || threads <= cores_free)) {
      return s.end_us;
    }
  }
  return kUnlimited;
}

}  // namespace trainyard::server
