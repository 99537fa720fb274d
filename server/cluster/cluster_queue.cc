#include "server/cluster/cluster_queue.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "server/forecast/outcome_history.h"
#include "server/scheduler/reasons.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {

std::string utc_text(int64_t time_us) {
  const std::time_t seconds = time_us / 1'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts)};
}

Range end_of(int64_t start_us, const DeviceBrief& rest) {
  const auto after = [&](double seconds) {
    return start_us + static_cast<int64_t>(std::min(seconds, 1e11) * 1e6);
  };
  return {after(rest.rest_low_s), after(rest.rest_s), after(rest.rest_high_s)};
}

/// Returns the wait reason of a job that was submitted to the cluster, with the cluster's
/// information.
WaitReason in_cluster(std::string_view cluster, const ClusterSight& sight) {
  std::string message = "In the queue of the cluster " + std::string(cluster);
  if (!sight.handle.empty()) message += " as " + sight.handle;
  if (!sight.reason.empty()) message += ": " + sight.reason;
  if (sight.start_estimate_us > 0) {
    message += "; the cluster expects it to start at " + utc_text(sight.start_estimate_us);
  }
  if (sight.rest.rest_s > 0) {
    message += "; it is then forecast to run for " + duration_text(sight.rest.rest_s) + " (" +
               duration_text(sight.rest.rest_low_s) + " to " +
               duration_text(sight.rest.rest_high_s) + ")";
  }
  return {"WAITING_IN_CLUSTER", message + "."};
}

}  // namespace

void ClusterQueue::put(WaitingJob job) {
  TRAINYARD_CHECK(!job.cluster.empty(), "job " + job.uid + " requests no cluster");
  remove(job.uid);
  Queue& queue = waiting_[job.cluster];
  queue.put(std::move(job));
}

void ClusterQueue::remove(std::string_view uid) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    it->second.remove(uid);
    it = it->second.empty() ? waiting_.erase(it) : std::next(it);
  }
}

bool ClusterQueue::empty() const { return waiting_.empty(); }

std::optional<ClusterState> ClusterQueue::state_of(const std::string& cluster,
                                                   bool draining) const {
  const auto config = std::ranges::find(configs_, cluster, &ClusterConfig::name);
  if (config == configs_.end()) return std::nullopt;
  ClusterState state{cluster, config->waiting_max, clusters_.waiting(cluster), draining};
  state.project_devices = project_devices_;
  if (std::optional<ClusterRefusal> refusal = clusters_.refusal(cluster)) {
    state.refused = std::move(refusal->text);
    state.next_trial_in_us = refusal->left_us;
  }
  return state;
}

Decisions ClusterQueue::decide(const Shares& shares, bool draining, int64_t now_us,
                               Quotas quotas) const {
  Decisions all;
  all.waits.quotas = std::move(quotas);
  for (const auto& [cluster, queue] : waiting_) {
    const std::optional<ClusterState> state = state_of(cluster, draining);
    if (!state) continue;
    Decisions decisions =
        decide_cluster(queue, *state, shares, now_us, std::move(all.waits.quotas));
    all.waits.quotas = std::move(decisions.waits.quotas);
    TRAINYARD_CHECK(std::cmp_less_equal(decisions.starts.size(),
                                        std::max(0, state->waiting_max - state->waiting)),
                    std::to_string(decisions.starts.size()) +
                        " jobs are submitted to the cluster " + cluster + ", in which " +
                        std::to_string(state->waiting) + " of at most " +
                        std::to_string(state->waiting_max) + " wait");
    for (StartDecision& start : decisions.starts) all.starts.push_back(std::move(start));
    if (decisions.wake_time_us) {
      all.wake_time_us =
          std::min(all.wake_time_us.value_or(*decisions.wake_time_us), *decisions.wake_time_us);
    }
  }
  return all;
}

std::optional<WaitReason> ClusterQueue::why(const Job& job, const Shares& shares,
                                            const Quotas& quotas, bool draining,
                                            int64_t now_us) const {
  const std::string& cluster = job.spec.resources().cluster();
  if (cluster.empty()) return std::nullopt;
  if (job.state == JobState::kQueued) {
    const auto queue = waiting_.find(cluster);
    if (queue == waiting_.end()) return std::nullopt;
    const WaitingJob* waiting = queue->second.find(job.uid);
    if (waiting == nullptr) return std::nullopt;
    if (auto held = quota_reason(quotas, *waiting, now_us); held && !draining) return held;
    const std::optional<ClusterState> state = state_of(cluster, draining);
    return cluster_reason(*waiting, state ? &*state : nullptr,
                          cluster_position(queue->second, *waiting, shares, now_us), now_us);
  }
  if (job.state != JobState::kStarting) return std::nullopt;
  const std::optional<ClusterSight> sight = clusters_.find(job.uid);
  if (!sight) return std::nullopt;
  if (!sight->granted) return in_cluster(cluster, *sight);
  return WaitReason{"STARTING_IN_CLUSTER",
                    "The cluster " + cluster + " allocated " +
                        (sight->nodes.empty() ? std::string("a node") : sight->nodes) +
                        " to it as " + sight->handle + "; its worker is starting."};
}

void ClusterQueue::add_to(QueueView& view, const Shares& shares, const Quotas& quotas,
                          bool draining, int64_t now_us, size_t count_max,
                          const std::string& uid) const {
  const auto add = [&](QueuedJob job) {
    if (view.jobs.size() < count_max && (uid.empty() || job.uid == uid)) {
      view.jobs.push_back(std::move(job));
    }
  };
  for (const ClusterConfig& config : configs_) {
    for (const ClusterSight& sight : clusters_.sights(config.name)) {
      if (sight.granted) continue;
      ++view.waiting;
      QueuedJob job;
      job.uid = sight.uid;
      job.id = sight.job.substr(sight.job.rfind('/') + 1);
      job.project = sight.project;
      job.owner = sight.owner;
      job.priority = sight.priority;
      job.device = std::string(kClusterPrefix) + config.name;
      const int64_t start = sight.start_estimate_us;
      if (start > 0) {
        job.start = {start, start, start};
        if (sight.rest.rest_s > 0) job.end = end_of(start, sight.rest);
      }
      job.why = in_cluster(config.name, sight);
      add(std::move(job));
    }
  }
  for (const auto& [cluster, queue] : waiting_) {
    view.waiting += static_cast<int64_t>(queue.size());
    const std::optional<ClusterState> state = state_of(cluster, draining);
    int64_t position = 0;
    for (const WaitingJob* waiting :
         cluster_order(queue, shares, now_us, uid.empty() ? count_max : kClusterPositionsMax)) {
      ++position;
      if (!uid.empty() && waiting->uid != uid) continue;
      QueuedJob job;
      job.uid = waiting->uid;
      job.id = waiting->name;
      job.project = waiting->project;
      job.owner = waiting->owner;
      job.priority = waiting->priority;
      job.position = position;
      job.device = std::string(kClusterPrefix) + cluster;
      if (auto held = quota_reason(quotas, *waiting, now_us); held && !draining) {
        job.why = std::move(*held);
      } else if (auto why =
                     cluster_reason(*waiting, state ? &*state : nullptr, position - 1, now_us)) {
        job.why = std::move(*why);
      }
      add(std::move(job));
    }
  }
}

}  // namespace trainyard::server
