#include "server/scheduler/cluster.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "server/scheduler/order.h"

namespace trainyard::server {
namespace {

/// Calls `visit` for the jobs that are not in a retry pause, in queue order, until it returns
/// false. Each visited job counts as one device used by its owner.
void walk(const Queue& waiting, const Shares& shares, int64_t now_us,
          const std::function<bool(const WaitingJob&)>& visit) {
  Order order(shares, now_us);
  std::vector<Head> heads;
  const auto skip_retry_pauses = [&](Head& head) {
    while (!head.over() && in_retry_pause(head.first(), now_us)) head.advance();
    return !head.over();
  };
  for (const Queue::Front& front : waiting.fronts()) {
    Head head(front, order.usage(front.of->owner));
    if (skip_retry_pauses(head)) heads.push_back(head);
  }
  order.push(std::move(heads));
  while (!order.empty()) {
    Head head = order.pop();
    if (!visit(head.first())) return;
    order.charge(head.first().owner, 1);
    head.advance();
    if (!skip_retry_pauses(head)) continue;
    head.usage = order.usage(head.of->owner);
    order.push(head);
  }
}

}  // namespace

std::string_view cluster_of(const std::vector<std::string>& devices) {
  if (devices.empty() || !devices.front().starts_with(kClusterPrefix)) return {};
  return std::string_view(devices.front()).substr(kClusterPrefix.size());
}

Decisions decide_cluster(const Queue& waiting, const ClusterState& cluster, const Shares& shares,
                         int64_t now_us, Quotas quotas) {
  Decisions decisions;
  decisions.waits.quotas = std::move(quotas);
  if (cluster.draining) return decisions;
  decisions.wake_time_us = waiting.next_retry_us(now_us);
  if (!cluster.refused.empty() && cluster.next_trial_in_us > 0) {
    if (!waiting.empty()) decisions.wake_time_us = now_us + cluster.next_trial_in_us;
    return decisions;
  }
  int32_t places = cluster.waiting_max - cluster.waiting;
  // One job is enough to test whether the cluster accepts jobs.
  if (!cluster.refused.empty()) places = std::min(places, 1);
  if (places <= 0) return decisions;
  size_t held = 0;
  walk(waiting, shares, now_us, [&](const WaitingJob& job) {
    if (!may_use_cluster(cluster.project_devices, job.project, cluster.name)) return true;
    const QuotaNeed need = job.quota_need();
    if (const DeviceQuota* const quota = decisions.waits.quotas.find_exceeded(need)) {
      const std::optional<int64_t> frees_us = Quotas::frees_us(*quota, need);
      if (quota->kind == QuotaKind::kDeviceHours && frees_us) {
        decisions.wake_time_us = std::min(decisions.wake_time_us.value_or(kUnlimited), *frees_us);
      }
      return ++held < kClusterPositionsMax;
    }
    decisions.waits.quotas.charge(need);
    decisions.starts.push_back(
        {job.uid,
         {std::string(kClusterPrefix) + cluster.name},
         "SUBMITTED_TO_CLUSTER",
         "Submitted to the cluster " + cluster.name + ", which decides when it starts."});
    return std::cmp_less(decisions.starts.size(), places);
  });
  return decisions;
}

std::string next_trial_text(int64_t next_trial_in_us) {
  const int64_t left_s = (next_trial_in_us + 999'999) / 1'000'000;
  return left_s > 0 ? "in " + std::to_string(left_s) + " s" : "now";
}

std::optional<int64_t> cluster_position(const Queue& waiting, const WaitingJob& job,
                                        const Shares& shares, int64_t now_us) {
  int64_t ahead = 0;
  bool found = false;
  walk(waiting, shares, now_us, [&](const WaitingJob& next) {
    found = &next == &job;
    return !found && ++ahead < static_cast<int64_t>(kClusterPositionsMax);
  });
  return found ? std::optional(ahead) : std::nullopt;
}

std::vector<const WaitingJob*> cluster_order(const Queue& waiting, const Shares& shares,
                                             int64_t now_us, size_t count_max) {
  std::vector<const WaitingJob*> jobs;
  if (count_max == 0) return jobs;
  walk(waiting, shares, now_us, [&](const WaitingJob& job) {
    jobs.push_back(&job);
    return jobs.size() < count_max;
  });
  return jobs;
}

std::optional<WaitReason> cluster_reason(const WaitingJob& job, const ClusterState* cluster,
                                         std::optional<int64_t> ahead, int64_t now_us) {
  if (cluster == nullptr) {
    return WaitReason{
        "CLUSTER_NOT_FOUND",
        "Waits for the cluster " + job.cluster +
            ", which this server no longer has; cancel it, or configure the cluster again."};
  }
  const std::vector<std::string>* const list = find_list(cluster->project_devices, job.project);
  if (list != nullptr && !may_use_cluster(cluster->project_devices, job.project, cluster->name)) {
    return WaitReason{"NO_DEVICE", "Waits for the cluster " + cluster->name +
                                       ", which the job's project may not use now. " +
                                       list_text(job.project, *list) + "."};
  }
  if (cluster->draining) {
    return WaitReason{"SERVER_DRAINING",
                      "The server is stopping; the job starts when the server is back."};
  }
  if (!cluster->refused.empty()) {
    return WaitReason{"CLUSTER_REFUSED",
                      "The cluster " + cluster->name +
                          " accepts no jobs at the moment: " + cluster->refused +
                          ". A problem of the cluster, not of the job; the server tries one job " +
                          next_trial_text(cluster->next_trial_in_us) + "."};
  }
  if (in_retry_pause(job, now_us)) {
    if (job.workers_lost == 0) return std::nullopt;
    return WaitReason{"RETRY_BACKOFF", "Its worker was lost " + std::to_string(job.workers_lost) +
                                           " times without progress; it restarts after a pause."};
  }
  std::string message = "Waits to be submitted to the cluster " + cluster->name +
                        ", whose queue has " + std::to_string(cluster->waiting) + " of at most " +
                        std::to_string(cluster->waiting_max) + " jobs of this server";
  if (!ahead) {
    message += "; more than " + std::to_string(kClusterPositionsMax) + " jobs are ahead of it";
  } else if (*ahead > 0) {
    message +=
        "; " + std::to_string(*ahead) + (*ahead == 1 ? " job is" : " jobs are") + " ahead of it";
  }
  return WaitReason{"WAITING_FOR_CLUSTER", message + "."};
}

}  // namespace trainyard::server
