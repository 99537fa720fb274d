#include "server/scheduler/queue_view.h"

#include <iterator>
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
    to.priority = job.priority;
    to.position = position;
    to.start = p.start;
    to.end = p.end;
    to.device = p.device;
    if (auto why = waits.find(queue, fleet, policy, p.uid, now_us)) to.why = std::move(*why);
  };
  std::vector<Projected> projected;
  if (uid.empty() || queue.find(uid) != nullptr) {
    projected =
        project(queue, fleet, shares, now_us, uid.empty() ? count_max : kQueueProjectedMax, uid);
  }
  for (size_t i = 0; i < projected.size(); ++i) {
    if (uid.empty() || projected[i].uid == uid) add(projected[i], static_cast<int64_t>(i) + 1);
  }
  if (!uid.empty() && view.jobs.empty() && queue.find(uid) != nullptr) {
    add(Projected{uid, {}, {}, {}}, 0);
  }
  return view;
}

std::vector<DeviceView> view_devices(const Fleet& fleet) {
  std::vector<DeviceView> views;
  for (Fleet::Index i = 0; i < std::ssize(fleet.devices().devices); ++i) {
    const Device& d = fleet.device(i);
    DeviceView& view = views.emplace_back();
    view.device = d.name;
    view.others_bytes = d.others_bytes;
    for (const PlacedJob* job : fleet.node(i).jobs) view.jobs.push_back(*job);
  }
  return views;
}

}  // namespace trainyard::server
