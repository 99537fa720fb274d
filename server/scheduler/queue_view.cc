#include "server/scheduler/queue_view.h"

#include <utility>

#include "server/scheduler/projection.h"

namespace trainyard::server {

QueueView view_queue(const Queue& queue, const Fleet& fleet, const Shares& shares,
                     const WaitReasons& waits, const Policy& policy, int64_t now_us,
                     size_t count_max, const std::string& uid) {
  QueueView view;
  view.waiting = static_cast<int64_t>(queue.size());
  const auto add = [&](const Projected& p, int64_t position) {
    const WaitingJob& job = *queue.find(p.uid);
    QueuedJob& to = view.jobs.emplace_back();
    to.uid = p.uid;
    to.id = job.name;
    to.owner = job.owner;
    to.project = job.project;
    to.priority = job.priority;
    to.position = position;
    to.start = p.start;
    to.end = p.end;
    to.device = p.device;
    if (auto why = waits.find(queue, fleet, policy, p.uid, now_us)) to.why = std::move(*why);
  };
  std::vector<Projected> projected;
  if (uid.empty() || queue.find(uid) != nullptr) {
    projected = project(queue, fleet, shares, now_us, uid.empty() ? count_max : kQueueProjectedMax,
                        uid, waits.quotas);
  }
  for (size_t i = 0; i < projected.size(); ++i) {
    if (uid.empty() || projected[i].uid == uid) add(projected[i], static_cast<int64_t>(i) + 1);
  }
  if (!uid.empty() && view.jobs.empty() && queue.find(uid) != nullptr) {
    add(Projected{uid, {}, {}, {}}, 0);
  }
  return view;
}

}  // namespace trainyard::server
