#include "server/dispatch/dispatch_index.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace trainyard::server {

// The first read of the store may already include a change that is reported later. Changes are
// applied in order, so the newest is applied last. Until then a job that has just ended may be
// chosen to start, which the store refuses.
Status DispatchIndex::update(JobStore& store, std::span<const JobBrief> changes) {
  const MutexLock lock(mu_);
  if (!complete_) {
    // An error does not lose `changes`, because the next try reads their result from the store.
    if (Status s = read(store); !s.ok()) return s;
  }
  // An exception before all changes are applied leaves the index incomplete, so it is read again.
  complete_ = false;
  for (const JobBrief& job : changes) put(job);
  complete_ = true;
  return {};
}

Status DispatchIndex::read(JobStore& store) {
  queue_.clear();
  cluster_queue_.clear();
  fleet_.clear_jobs();
  active_.clear();
  shares_.clear();
  deadlines_.clear();
  if (Status s =
          store.read_unfinished([this](const JobBrief& job) TRAINYARD_REQUIRES(mu_) { put(job); });
      !s.ok()) {
    return s;
  }
  return read_shares(store);
}

// put() counts the use of devices by active jobs from now on. This adds the earlier use, by ended
// attempts and by live attempts up to now.
Status DispatchIndex::read_shares(JobStore& store) {
  if (!shares_.enabled()) return {};
  const int64_t now_us = clock_.wall_us();
  ASSIGN_OR_RETURN(const Uses uses, store.uses());
  for (const OwnerUse& use : uses.past) shares_.add(use.owner, use.used, use.as_of_us, now_us);
  for (const AttemptUse& use : uses.running) {
    shares_.add(use.owner, use.devices, use.start_us, now_us, now_us);
  }
  return {};
}

void DispatchIndex::take(const JobBrief& job) {
  const MutexLock lock(mu_);
  // An exception in put() leaves the index incomplete, so that the next refresh reads everything.
  const bool was_complete = std::exchange(complete_, false);
  put(job);
  complete_ = was_complete;
}

void DispatchIndex::put(const JobBrief& job) {
  std::optional<WaitingJob> waiting = waiting_job(job);
  std::optional<PlacedJob> placed = placed_job(job);
  TRAINYARD_CHECK(!waiting || !placed, "job " + job.uid + " is both waiting and on devices");
  if (waiting && !waiting->cluster.empty()) {
    cluster_queue_.put(std::move(*waiting));
  } else if (waiting) {
    queue_.put(std::move(*waiting));
  } else {
    queue_.remove(job.uid);
    cluster_queue_.remove(job.uid);
  }
  const int64_t now_us = clock_.wall_us();
  const auto before = active_.find(job.uid);
  if (placed) {
    TRAINYARD_CHECK(!placed->devices.empty(), "job " + job.uid + " is active without a device");
    if (before == active_.end()) {
      shares_.change(job.owner, count_devices(placed->devices, job.resources), now_us);
    } else {  // the job was active already: keep the times that say how much work a kill would lose
      placed->start_time_us = before->second.start_time_us;
      placed->saved_time_us = before->second.saved_time_us;
      placed->owner = before->second.owner;  // who has the devices, even if the job was given away
    }
    active_.insert_or_assign(job.uid, std::move(*placed));
  } else if (before != active_.end()) {
    shares_.change(before->second.owner, -count_devices(before->second.devices, job.resources),
                   now_us);
    active_.erase(before);
  }
  place(job.uid);
  deadlines_.note(job);
}

void DispatchIndex::place(const std::string& uid) {
  const auto on_device = active_.find(uid);
  if (on_device != active_.end()) {
    PlacedJob job = on_device->second;
    job.stopping = stopping_.contains(uid);
    return fleet_.place(std::move(job));
  }
  const PlacedJob* last = fleet_.find(uid);
  const auto process = processes_.find(uid);
  if (process == processes_.end()) return fleet_.leave(uid, clock_.wall_us());
  PlacedJob job = last != nullptr ? *last : PlacedJob{uid, process->second, uid};
  job.stopping = true;
  fleet_.place(std::move(job));
}

void DispatchIndex::note_pace(const JobChange& change) {
  const MutexLock lock(pace_mu_);
  Pace& pace = paces_[change.uid];
  const Range end =
      end_of(change.remaining_low_s, change.remaining_s, change.remaining_high_s, change.time_us);
  if (end.known()) pace.end = end;
  pace.saved |= change.saved;
  pace.time_us = change.time_us;
}

void DispatchIndex::take_paces() {
  std::unordered_map<std::string, Pace> reported;
  {
    const MutexLock lock(pace_mu_);
    reported.swap(paces_);
  }
  for (const auto& [uid, pace] : reported) {
    const auto job = active_.find(uid);
    if (job == active_.end() || !job->second.running) continue;
    if (pace.end.known()) job->second.end = pace.end;
    if (pace.saved) job->second.saved_time_us = pace.time_us;
    place(uid);
  }
}

// insert_or_assign: the next attempt may begin before the end of the last one was noticed.
void DispatchIndex::add_process(const std::string& uid, const std::vector<std::string>& devices) {
  const MutexLock lock(mu_);
  TRAINYARD_CHECK(!devices.empty(), "job " + uid + " starts without a device");
  processes_.insert_or_assign(uid, devices);
  stopping_.erase(uid);
}

void DispatchIndex::remove_process(const std::string& uid) {
  const MutexLock lock(mu_);
  const bool was_there = processes_.erase(uid) == 1;
  TRAINYARD_CHECK(was_there, "job " + uid + " has no process to remove");
  stopping_.erase(uid);
  place(uid);
}

void DispatchIndex::leave(const std::string& uid) {
  const MutexLock lock(mu_);
  TRAINYARD_CHECK(processes_.contains(uid), "job " + uid + " has no process to stop");
  stopping_.insert(uid);
  place(uid);
}

bool DispatchIndex::is_idle() const {
  const MutexLock lock(mu_);
  return queue_.empty() && cluster_queue_.empty() && active_.empty();
}

bool DispatchIndex::is_full() const {
  const MutexLock lock(mu_);
  return std::ranges::all_of(fleet_.groups(), [](const Fleet::Group& g) { return g.free.empty(); });
}

void DispatchIndex::set_project_devices(const ProjectDevices& lists) {
  const MutexLock lock(mu_);
  fleet_.set_project_devices(lists);
  cluster_queue_.set_project_devices(lists);
}

DispatchIndex::Pass DispatchIndex::decide(Devices devices, Quotas quotas, bool draining) {
  const MutexLock lock(mu_);
  take_paces();
  for (Device& device : devices.devices) {
    device.others_bytes = others_memory_.update(device, fleet_, clock_.steady_us());
  }
  fleet_.set_devices(std::move(devices));
  policy_.draining = draining;
  Pass pass;
  pass.here = server::decide(queue_, fleet_, shares_, policy_, clock_.wall_us(), std::move(quotas));
  pass.to_clusters =
      cluster_queue_.decide(shares_, draining, clock_.wall_us(), std::move(pass.here.waits.quotas));
  pass.waiting = !queue_.empty();
  waits_ = pass.here.waits;
  waits_.quotas = std::move(pass.to_clusters.waits.quotas);
  projected_us_ = 0;
  return pass;
}

void DispatchIndex::clear_waits() {
  const MutexLock lock(mu_);
  waits_ = {};
  projected_us_ = 0;
}

const WaitReasons& DispatchIndex::waits_now(int64_t now_us) {
  constexpr int64_t kFreshUs = 1'000'000;  // a list explains many jobs
  if (projected_us_ == 0 || now_us < projected_us_ || now_us - projected_us_ > kFreshUs) {
    take_paces();
    projected_waits_ = waits_;
    projected_waits_.take_projection(queue_, fleet_, shares_, now_us);
    projected_us_ = now_us;
  }
  return projected_waits_;
}

Range DispatchIndex::expected_end(const std::string& uid) {
  const MutexLock lock(mu_);
  take_paces();
  const PlacedJob* const job = fleet_.find(uid);
  return job != nullptr ? job->end : Range();
}

std::vector<std::string> DispatchIndex::sharing(std::span<const std::string> devices) const {
  const MutexLock lock(mu_);
  std::vector<std::string> uids;
  for (const std::string& device : devices) {
    const auto jobs = fleet_.jobs_on(device);
    if (jobs.size() < 2) continue;
    for (const PlacedJob* job : jobs) uids.push_back(job->uid);
  }
  return uids;
}

std::vector<std::string> DispatchIndex::take_overdue() {
  const MutexLock lock(mu_);
  return deadlines_.take_passed(clock_.wall_us());
}

std::optional<int64_t> DispatchIndex::next_deadline() const {
  const MutexLock lock(mu_);
  return deadlines_.next();
}

int64_t DispatchIndex::half_life_us() const {
  const MutexLock lock(mu_);
  return policy_.half_life_us;
}

Job DispatchIndex::explained(Job job) {
  const bool of_cluster =
      !job.spec.resources().cluster().empty() && job.state == JobState::kStarting;
  if (job.state != JobState::kQueued && !of_cluster) return job;
  const MutexLock lock(mu_);
  const int64_t now_us = clock_.wall_us();
  std::optional<WaitReason> why =
      cluster_queue_.why(job, shares_, waits_.quotas, policy_.draining, now_us);
  if (!why) why = waits_now(now_us).find(queue_, fleet_, policy_, job.uid, now_us);
  if (why) {
    job.reason = std::move(why->reason);
    job.message = std::move(why->message);
  }
  return job;
}

QueueView DispatchIndex::queue(size_t count_max, const std::string& uid) {
  const MutexLock lock(mu_);
  const int64_t now_us = clock_.wall_us();
  projected_us_ = 0;  // the view and its messages have the times of one instant
  const WaitReasons& waits = waits_now(now_us);
  QueueView view = view_queue(queue_, fleet_, shares_, waits, policy_, now_us, count_max, uid);
  cluster_queue_.add_to(view, shares_, waits_.quotas, policy_.draining, now_us, count_max, uid);
  return view;
}

int32_t DispatchIndex::jobs_sharing_devices(const std::string& uid) const {
  const MutexLock lock(mu_);
  const PlacedJob* const job = fleet_.find(uid);
  size_t most = 1;
  if (job == nullptr) return 0;
  for (const std::string& device : job->devices) {
    most = std::max(most, fleet_.jobs_on(device).size());
  }
  return static_cast<int32_t>(most) - 1;
}

std::vector<DeviceView> DispatchIndex::devices(std::span<const Device> now) {
  const MutexLock lock(mu_);
  take_paces();
  std::vector<DeviceView> views;
  for (const Device& device : now) {
    DeviceView& view = views.emplace_back();
    view.others_bytes = others_memory_.estimate(device, fleet_);
    for (const PlacedJob* job : fleet_.jobs_on(device.name)) view.jobs.push_back(*job);
  }
  return views;
}

}  // namespace trainyard::server
