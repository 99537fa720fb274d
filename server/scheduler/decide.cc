#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "server/scheduler/fleet.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/slots.h"

namespace trainyard::server {
namespace {

// The rest of a line whose first job has not been decided on.
struct Head {
  const DeviceRequest* asked;
  int64_t line;
  std::set<const WaitingJob*, Queue::Before>::const_iterator job;
  std::set<const WaitingJob*, Queue::Before>::const_iterator end;
};

}  // namespace

bool is_resting(const WaitingJob& job, int64_t now_us) {
  return job.retry_time_us > now_us && job.retry_time_us - now_us <= kRetryPauseMaxUs;
}

// Of jobs that ask for the same, none gets a device once one has got none: while one decision is
// made, slots are only taken and kept. So each line is walked up to the first that waits, and the
// cost does not grow with those behind it.
Decisions decide(const Queue& queue, Fleet& fleet, const Shares&, const Policy& policy,
                 int64_t now_us) {
  Decisions decisions;
  decisions.waits.draining = policy.draining;
  if (policy.draining) return decisions;
  decisions.wake_time_us = queue.next_retry_us(now_us);
  std::vector<PlacedJob> placed;
  for (const auto& [uid, job] : fleet.placed()) placed.push_back(job);
  Slots slots(fleet.devices().devices, placed);
  const std::string& gpu_note = fleet.devices().note;

  std::vector<Head> heads;
  for (const auto& [of, line] : queue.lines())
    heads.push_back({&of.asked, line.id, line.jobs.begin(), line.jobs.end()});
  for (;;) {
    // A pause never delays the jobs behind.
    for (Head& head : heads) {
      while (head.job != head.end && is_resting(**head.job, now_us)) ++head.job;
    }
    std::erase_if(heads, [](const Head& head) { return head.job == head.end; });
    if (heads.empty()) return decisions;
    const auto first = std::ranges::min_element(
        heads, [](const Head& a, const Head& b) { return Queue::Before()(*a.job, *b.job); });
    const DeviceRequest& asked = *first->asked;
    Choice choice = choose_kind(asked, slots, gpu_note);
    const std::vector<const Device*> found = slots.find_free(choice.kind, asked.gpus);
    if (found.empty()) {
      decisions.waits.by_line.emplace(first->line,
                                         wait_for_device(asked, choice.kind, slots, gpu_note));
      slots.keep(choice.kind, asked.gpus);
      heads.erase(first);
      continue;
    }
    StartDecision start{(*first->job)->uid, {}, std::move(choice.reason), std::move(choice.message)};
    for (const Device* device : found) {
      slots.take(*device);
      start.devices.push_back(device->name);
    }
    decisions.starts.push_back(std::move(start));
    ++first->job;
  }
}

std::optional<WaitReason> WaitReasons::find(const Queue& queue, std::string_view uid,
                                            int64_t now_us) const {
  const WaitingJob* job = queue.find(uid);
  if (job == nullptr) return std::nullopt;
  if (draining) {
    return WaitReason{"SERVER_DRAINING",
                      "The server is stopping; the job starts when the server is back."};
  }
  if (is_resting(*job, now_us)) {
    // Without a lost worker it keeps the reason that it went back to the queue with.
    if (job->workers_lost == 0) return std::nullopt;
    return WaitReason{"RETRY_BACKOFF", "Its worker was lost " + std::to_string(job->workers_lost) +
                                           " times without progress; it restarts after a pause."};
  }
  const auto found = by_line.find(queue.line_of(uid));
  if (found == by_line.end()) return std::nullopt;
  return found->second;
}

Status check_satisfiable(DeviceWish wish, int32_t gpus, const Devices& devices) {
  if (wish != DeviceWish::kGpu) return {};
  std::map<std::string, int32_t> by_group;
  int32_t most = 0;
  for (const Device& d : devices.devices) {
    // An unhealthy device may recover; one without its module may not.
    const bool may = d.schedulable || d.checking || d.busy || d.health != DeviceHealth::kHealthy;
    if (d.kind == DeviceKind::kGpu && may) most = std::max(most, ++by_group[alike(d)]);
  }
  if (gpus <= most) return {};
  Error e =
      most == 0
          ? field_error("RESOURCES_IMPOSSIBLE", "spec.resources.device",
                        "gpu is not available on this server, expected auto or cpu")
          : field_error("RESOURCES_IMPOSSIBLE", "spec.resources.gpus",
                        std::to_string(gpus) + " is not available on this server, expected 1.." +
                            std::to_string(most) + ", the GPUs of one model that it has");
  if (!devices.note.empty()) e.message += ". " + devices.note;
  e.metadata["gpu_max"] = std::to_string(most);
  return e;
}

}  // namespace trainyard::server
