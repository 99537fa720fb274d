// What the scheduler's tests decide on: jobs in a plain list, and a reason for each that waits.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/slots.h"

namespace trainyard::server {

struct Scene : Snapshot {
  std::vector<WaitingJob> waiting;  // in any order
};

struct JobWait {
  std::string uid;
  std::string reason;
  std::string message;
};
struct Decided {
  std::vector<StartDecision> starts;
  std::vector<JobWait> waits;  // in the order of the queue
  std::optional<int64_t> wake_time_us;

  /// For comparing and printing.
  std::string text() const {
    std::string text;
    for (const StartDecision& s : starts) {
      text += "start " + s.uid + " " + s.reason + " " + s.message;
      for (const std::string& device : s.devices) text += " " + device;
      text += "\n";
    }
    for (const JobWait& w : waits)
      text += "wait " + w.uid + " " + w.reason + " " + w.message + "\n";
    return text + "wake " + std::to_string(wake_time_us.value_or(0));
  }
};

inline std::vector<const WaitingJob*> in_order(const std::vector<WaitingJob>& waiting) {
  std::vector<const WaitingJob*> order;
  for (const WaitingJob& job : waiting) order.push_back(&job);
  std::ranges::sort(order, [](const auto* a, const auto* b) { return Queue::Before()(*a, *b); });
  return order;
}

/// Decides on a queue of the scene's jobs.
inline Decided decide(const Queue& queue, const Scene& scene, int64_t now_us) {
  Decisions d = decide(queue, static_cast<const Snapshot&>(scene), now_us);
  Decided decided{std::move(d.starts), {}, d.wake_time_us};
  for (const WaitingJob* job : in_order(scene.waiting)) {
    const bool starts =
        std::ranges::find(decided.starts, job->uid, &StartDecision::uid) != decided.starts.end();
    const std::optional<WaitReason> why = d.waits.find(*job, now_us);
    if (!starts && why) decided.waits.push_back({job->uid, why->reason, why->message});
  }
  return decided;
}

inline Decided decide(const Scene& scene, int64_t now_us) {
  Queue queue;
  for (const WaitingJob& job : scene.waiting) queue.put(job);
  return decide(queue, scene, now_us);
}

/// The same decision made job by job, however many there are: what decide() must not differ from.
inline Decided decide_one_by_one(const Scene& scene, int64_t now_us) {
  Decided decided;
  Slots slots(scene.inventory.devices, scene.placed);
  const std::string& note = scene.inventory.note;
  for (const WaitingJob* job : in_order(scene.waiting)) {
    if (scene.draining) {
      decided.waits.push_back({job->uid, "SERVER_DRAINING",
                               "The server is stopping; the job starts when the server is back."});
      continue;
    }
    if (job->retry_time_us > now_us && job->retry_time_us - now_us <= kRetryPauseMaxUs) {
      decided.wake_time_us =
          std::min(decided.wake_time_us.value_or(job->retry_time_us), job->retry_time_us);
      if (job->workers_lost > 0) {
        decided.waits.push_back({job->uid, "RETRY_BACKOFF",
                                 "Its worker was lost " + std::to_string(job->workers_lost) +
                                     " times without progress; it restarts after a pause."});
      }
      continue;
    }
    const Choice choice = choose_kind(job->asked, slots, note);
    const std::vector<const Device*> found = slots.find_free(choice.kind, job->asked.gpus);
    if (found.empty()) {
      const WaitReason why = wait_for_device(job->asked, choice.kind, slots, note);
      decided.waits.push_back({job->uid, why.reason, why.message});
      slots.keep(choice.kind, job->asked.gpus);
      continue;
    }
    StartDecision start{job->uid, {}, choice.reason, choice.message};
    for (const Device* device : found) {
      slots.take(*device);
      start.devices.push_back(device->name);
    }
    decided.starts.push_back(std::move(start));
  }
  return decided;
}

}  // namespace trainyard::server
