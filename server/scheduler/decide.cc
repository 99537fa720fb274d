#include <algorithm>
#include <map>
#include <set>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

const char* noun_of(DeviceKind kind) { return kind == DeviceKind::kGpu ? "GPU" : "CPU"; }

// Free slots per device, in the order of the inventory.
class Slots {
 public:
  explicit Slots(const Snapshot& snapshot) : devices_(snapshot.inventory.devices) {
    for (const Device& d : devices_) free_[d.name] = d.slots;
    for (const PlacedJob& job : snapshot.placed) --free_[job.device];
  }
  bool has_kind(DeviceKind kind) const {
    return std::any_of(devices_.begin(), devices_.end(), [&](const Device& d) {
      return d.kind == kind && d.schedulable && d.slots > 0;
    });
  }
  /// A device of this kind may be usable in some seconds.
  bool checks_kind(DeviceKind kind) const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [&](const Device& d) { return d.kind == kind && d.checking; });
  }
  /// Any device of this kind, usable now or not.
  bool lists_kind(DeviceKind kind) const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [&](const Device& d) { return d.kind == kind; });
  }
  const Device* find_free(DeviceKind kind) const {
    for (const Device& d : devices_)
      if (d.kind == kind && d.schedulable && free_.at(d.name) > 0) return &d;
    return nullptr;
  }
  void take(const Device& device) { --free_[device.name]; }

 private:
  const std::vector<Device>& devices_;
  std::map<std::string, int32_t> free_;  // below 0 if a device's slots were cut while jobs run
};

struct Choice {
  DeviceKind kind;
  std::string reason;
  std::string message;
};

// The kind of device a job runs on, by its wish and the server's devices, busy or not.
Choice choose_kind(const WaitingJob& job, const Slots& slots, const std::string& gpu_note) {
  const auto assigned = [](DeviceKind kind, std::string message) {
    return Choice{kind, "DEVICE_ASSIGNED", std::move(message)};
  };
  if (job.wish == DeviceWish::kCpu) return assigned(DeviceKind::kCpu, "The job asked for the CPU.");
  if (job.wish == DeviceWish::kGpu) return assigned(DeviceKind::kGpu, "The job asked for a GPU.");
  if (job.kind_before && (slots.has_kind(*job.kind_before) || slots.checks_kind(*job.kind_before)))
    return assigned(*job.kind_before, std::string("The same kind of device as before, a ") +
                                          noun_of(*job.kind_before) +
                                          ", so that the result stays "
                                          "the same to the bit.");
  if (slots.has_kind(DeviceKind::kGpu) || slots.checks_kind(DeviceKind::kGpu))
    return assigned(DeviceKind::kGpu, "A GPU is there, and the job takes any device.");
  std::string why = gpu_note.empty() ? "No GPU can be used now." : gpu_note;
  return Choice{DeviceKind::kCpu, "CPU_FALLBACK", std::string("Runs on the CPU. ").append(why)};
}

WaitDecision wait_for_device(const WaitingJob& job, DeviceKind kind, const Slots& slots,
                             const std::string& gpu_note) {
  if (slots.has_kind(kind))
    return {job.uid, "WAITING_FOR_DEVICE",
            std::string("Waits for a free slot: every ") + noun_of(kind) +
                " slot is taken by jobs of higher priority or submitted earlier."};
  if (slots.checks_kind(kind))
    return {job.uid, "WAITING_FOR_DEVICE",
            std::string("Waits for a ") + noun_of(kind) +
                ": it is being checked before a job starts on it, which takes some seconds."};
  std::string message = std::string("Waits for a ") + noun_of(kind) + ": ";
  if (kind == DeviceKind::kGpu && !gpu_note.empty())
    message += gpu_note;
  else
    message += slots.lists_kind(kind) ? "none can be used now." : "this server has none.";
  return {job.uid, "NO_DEVICE", std::move(message)};
}

}  // namespace

Decisions decide(const Snapshot& snapshot, int64_t now_us) {
  std::vector<const WaitingJob*> order;
  for (const WaitingJob& job : snapshot.waiting) order.push_back(&job);
  std::sort(order.begin(), order.end(), [](const WaitingJob* a, const WaitingJob* b) {
    return a->priority != b->priority ? a->priority > b->priority : a->order < b->order;
  });

  Decisions decisions;
  Slots slots(snapshot);
  const std::string& gpu_note = snapshot.inventory.note;
  for (const WaitingJob* job : order) {
    if (snapshot.draining) {
      decisions.waits.push_back(
          {job->uid, "SERVER_DRAINING", "The server is stopping; the job starts when it is back."});
      continue;
    }
    // A pause never holds up the jobs behind. One that seems longer than any pause can be comes
    // from a wall clock that jumped back, and is over.
    if (job->retry_time_us > now_us && job->retry_time_us - now_us <= kRetryPauseMaxUs) {
      decisions.wake_time_us =
          std::min(decisions.wake_time_us.value_or(job->retry_time_us), job->retry_time_us);
      decisions.waits.push_back({job->uid, "RETRY_BACKOFF",
                                 "Its worker was lost " + std::to_string(job->workers_lost) +
                                     " times without progress; starts again after a pause."});
      continue;
    }
    const Choice choice = choose_kind(*job, slots, gpu_note);
    const Device* device = slots.find_free(choice.kind);
    if (device == nullptr) {
      decisions.waits.push_back(wait_for_device(*job, choice.kind, slots, gpu_note));
      continue;
    }
    slots.take(*device);
    decisions.starts.push_back({job->uid, device->name, choice.reason, choice.message});
  }
  return decisions;
}

Status check_satisfiable(DeviceWish wish, const Devices& devices) {
  const auto has = [&](DeviceKind kind) {
    return std::any_of(devices.devices.begin(), devices.devices.end(), [&](const Device& d) {
      // A device that is only ill now may be well again; one without its module may not.
      return d.kind == kind && (d.schedulable || d.checking || d.health != DeviceHealth::kHealthy);
    });
  };
  if (wish != DeviceWish::kGpu || has(DeviceKind::kGpu)) return {};
  Error e = field_error("RESOURCES_IMPOSSIBLE", "spec.resources.device",
                        "gpu is not possible on this server, expected auto or cpu");
  if (!devices.note.empty()) e.message += ". " + devices.note;
  e.metadata["gpu_max"] = "0";
  return e;
}

}  // namespace trainyard::server
