// Support for the scheduler's tests: scenes of devices and jobs in plain lists, and the reason why
// each job waits.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/shares.h"
#include "tests/server/gibibyte.h"

namespace trainyard::server {

inline constexpr int64_t kMinuteUs = 60'000'000;

using Strings = std::vector<std::string>;

struct Scene {
  Devices inventory;
  std::vector<PlacedJob> placed;
  std::vector<WaitingJob> waiting;              // in any order
  std::map<std::string, int64_t> left_time_us;  // when a job last left the device
  Policy policy;
  Shares* shares = nullptr;
  ProjectDevices projects;
};

struct JobWait {
  std::string uid;
  std::string reason;
  std::string message;
};
struct Decided {
  std::vector<StartDecision> starts;
  std::vector<PreemptDecision> preempts;
  std::vector<JobWait> waits;  // by priority, then in order of submission
  std::optional<int64_t> wake_time_us;
  bool more = false;
  std::vector<Reservation> reservations;

  /// Returns the decisions as text, to compare and print them.
  std::string text() const {
    std::string text;
    for (const StartDecision& s : starts) {
      text += "start " + s.uid + " " + s.reason + " " + s.message;
      for (const std::string& device : s.devices) text += " " + device;
      text += "\n";
    }
    for (const PreemptDecision& p : preempts) text += "stop " + p.uid + " for " + p.for_uid + "\n";
    for (const JobWait& w : waits)
      text += "wait " + w.uid + " " + w.reason + " " + w.message + "\n";
    return text + "wake " + std::to_string(wake_time_us.value_or(0));
  }
  const JobWait& wait(std::string_view uid) const {
    static const JobWait none{"", "", "it does not wait"};
    const auto found = std::ranges::find(waits, uid, &JobWait::uid);
    return found == waits.end() ? none : *found;
  }
};

inline std::vector<const WaitingJob*> in_order(const std::vector<WaitingJob>& waiting) {
  std::vector<const WaitingJob*> order;
  for (const WaitingJob& job : waiting) order.push_back(&job);
  std::ranges::sort(order, Queue::Before());
  return order;
}

/// Decides on a queue and a fleet that contain the scene's jobs and devices.
inline Decided decide(const Queue& queue, Fleet& fleet, const Scene& scene, int64_t now_us) {
  const Shares none;
  Decisions d =
      decide(queue, fleet, scene.shares != nullptr ? *scene.shares : none, scene.policy, now_us);
  Decided decided{std::move(d.starts), std::move(d.preempts), {}, d.wake_time_us, d.more,
                  d.waits.reservations};
  // Reasons describe the state after the starts, so the starts are placed first.
  for (const StartDecision& start : decided.starts) {
    PlacedJob job;
    const WaitingJob& waiting = *queue.find(start.uid);
    const bool on_gpu = start.devices[0] != "devices/cpu";
    job.uid = start.uid;
    job.name = waiting.name;
    job.project = waiting.project;
    job.devices = start.devices;
    job.bytes = (on_gpu ? waiting.on_gpu : waiting.on_cpu).bytes;
    if (!on_gpu) job.mapped = waiting.asked.mapped;
    job.threads = waiting.asked.threads;
    job.exclusive = waiting.asked.exclusive;
    fleet.place(std::move(job));
  }
  for (const WaitingJob* job : in_order(scene.waiting)) {
    const bool starts =
        std::ranges::find(decided.starts, job->uid, &StartDecision::uid) != decided.starts.end();
    const auto why = d.waits.find(queue, fleet, scene.policy, job->uid, now_us);
    if (!starts && why) decided.waits.push_back({job->uid, why->reason, why->message});
  }
  for (const StartDecision& start : decided.starts) fleet.remove(start.uid);
  return decided;
}

inline void fill(const Scene& scene, Queue& queue, Fleet& fleet) {
  for (const WaitingJob& job : scene.waiting) queue.put(job);
  fleet.set_project_devices(scene.projects);
  fleet.set_devices(scene.inventory);
  for (const auto& [device, time_us] : scene.left_time_us) {
    PlacedJob gone;
    gone.uid = "gone";
    gone.devices = {device};
    fleet.place(std::move(gone));
    fleet.leave("gone", time_us);
  }
  for (const PlacedJob& job : scene.placed) fleet.place(job);
}

inline Decided decide(const Scene& scene, int64_t now_us) {
  Queue queue;
  Fleet fleet;
  fill(scene, queue, fleet);
  return decide(queue, fleet, scene, now_us);
}

}  // namespace trainyard::server
