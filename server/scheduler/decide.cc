#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

const char* noun_of(DeviceKind kind) { return kind == DeviceKind::kGpu ? "GPU" : "CPU"; }

// "a GPU", "2 GPUs of one model"
std::string wanted(DeviceKind kind, int32_t count) {
  if (count > 1) return std::to_string(count) + " " + noun_of(kind) + "s of one model";
  return std::string("a ") + noun_of(kind);
}

// Free slots per device, in the order of the inventory.
class Slots {
 public:
  explicit Slots(const Snapshot& snapshot) : devices_(snapshot.inventory.devices) {
    for (const Device& d : devices_) {
      free_[d.name] = d.slots;
      const bool usable = d.schedulable && d.slots > 0;
      Alike& group = alike_[{d.kind, alike(d)}];
      group.usable += usable;
      group.usable_soon += usable || d.checking || d.busy;
      checks_any_ |= d.checking;
    }
    for (const PlacedJob& job : snapshot.placed) {
      for (const std::string& device : job.devices) --free_[device];
    }
  }
  /// Whether that many devices of this kind and of one model are usable, busy or not.
  bool has_kind(DeviceKind kind, int32_t count = 1) const {
    return has(kind, [&](const Alike& a) { return a.usable >= count; });
  }
  /// The same, including those that may be usable in some seconds.
  bool will_have_kind(DeviceKind kind, int32_t count = 1) const {
    return has(kind, [&](const Alike& a) { return a.usable_soon >= count; });
  }
  /// Some device is being checked.
  bool checks_any() const { return checks_any_; }
  /// Any device of this kind, usable now or not.
  bool lists_kind(DeviceKind kind) const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [&](const Device& d) { return d.kind == kind; });
  }
  /// The first `count` free devices of one model; empty if there are fewer.
  std::vector<const Device*> find_free(DeviceKind kind, int32_t count) const {
    for (const Device& first : devices_) {
      if (first.kind != kind || !is_free(first)) continue;
      std::vector<const Device*> found;
      for (const Device& d : devices_) {
        const bool fits = d.kind == kind && alike(d) == alike(first) && is_free(d);
        if (std::ssize(found) < count && fits) found.push_back(&d);
      }
      if (std::ssize(found) == count) return found;
    }
    return {};
  }
  void take(const Device& device) { --free_[device.name]; }
  /// Hides the devices of which `count` alike are usable now or soon: a job that needs that many
  /// waits for them.
  void keep(DeviceKind kind, int32_t count) {
    for (const Device& d : devices_) {
      if (d.kind == kind && alike_.at({d.kind, alike(d)}).usable_soon >= count) {
        kept_.insert(d.name);
      }
    }
  }

 private:
  struct Alike {
    int32_t usable = 0, usable_soon = 0;
  };
  template <typename Predicate>
  bool has(DeviceKind kind, Predicate enough) const {
    return std::any_of(alike_.begin(), alike_.end(),
                       [&](const auto& a) { return a.first.first == kind && enough(a.second); });
  }
  bool is_free(const Device& d) const {
    return d.schedulable && free_.at(d.name) > 0 && !kept_.contains(d.name);
  }

  const std::vector<Device>& devices_;
  std::map<std::pair<DeviceKind, std::string>, Alike> alike_;  // by alike()
  bool checks_any_ = false;
  std::map<std::string, int32_t> free_;  // below 0 if a device's slots were cut while jobs run
  std::set<std::string> kept_;
};

struct Choice {
  DeviceKind kind;
  std::string reason;
  std::string message;
};

// The kind of device for a job, from its request and the server's devices, busy or not.
Choice choose_kind(const WaitingJob& job, const Slots& slots, const std::string& gpu_note) {
  const auto assigned = [](DeviceKind kind, std::string message) {
    return Choice{kind, "DEVICE_ASSIGNED", std::move(message)};
  };
  if (job.wish == DeviceWish::kCpu) return assigned(DeviceKind::kCpu, "The job asked for the CPU.");
  if (job.wish == DeviceWish::kGpu)
    return assigned(DeviceKind::kGpu,
                    "The job asked for " + wanted(DeviceKind::kGpu, job.gpus) + ".");
  if (job.kind_before && slots.will_have_kind(*job.kind_before))
    return assigned(*job.kind_before, std::string("The same kind of device as before, a ") +
                                          noun_of(*job.kind_before) +
                                          ", so that the result stays bit-identical.");
  if (slots.will_have_kind(DeviceKind::kGpu))
    return assigned(DeviceKind::kGpu, "The job accepts any device, and a GPU is available.");
  std::string why = gpu_note.empty() ? "No GPU can be used now." : gpu_note;
  return Choice{DeviceKind::kCpu, "CPU_FALLBACK", std::string("Runs on the CPU. ").append(why)};
}

WaitDecision wait_for_device(const WaitingJob& job, DeviceKind kind, const Slots& slots,
                             const std::string& gpu_note) {
  if (slots.has_kind(kind, job.gpus)) {
    if (job.gpus > 1)
      return {job.uid, "WAITING_FOR_DEVICE",
              "Waits until " + wanted(kind, job.gpus) +
                  " are free at the same time; freed ones are held back from jobs of lower "
                  "priority and later jobs."};
    return {job.uid, "WAITING_FOR_DEVICE",
            std::string("Waits for a free slot: every ") + noun_of(kind) +
                " slot is used by or reserved for jobs of higher priority or earlier jobs."};
  }
  std::string message = "Waits for " + wanted(kind, job.gpus) + ": ";
  if (slots.will_have_kind(kind, job.gpus) && !slots.checks_any())
    return {job.uid, "WAITING_FOR_DEVICE",
            message + (gpu_note.empty() ? "another process uses one exclusively." : gpu_note)};
  if (slots.will_have_kind(kind, job.gpus))
    return {job.uid, "WAITING_FOR_DEVICE",
            message + (job.gpus > 1 ? "some are" : "it is") +
                " being checked before a job starts on " + (job.gpus > 1 ? "them" : "it") +
                ", which takes some seconds."};
  if (kind == DeviceKind::kGpu && !gpu_note.empty())
    message += gpu_note;
  else if (slots.has_kind(kind))
    message += "fewer are usable now.";
  else
    message += slots.lists_kind(kind) ? "none is usable now." : "this server has none.";
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
          {job->uid, "SERVER_DRAINING",
           "The server is stopping; the job starts when the server is back."});
      continue;
    }
    // A pause never delays the jobs behind. One that seems longer than the maximum results from a
    // wall clock that jumped back, and is over.
    if (job->retry_time_us > now_us && job->retry_time_us - now_us <= kRetryPauseMaxUs) {
      decisions.wake_time_us =
          std::min(decisions.wake_time_us.value_or(job->retry_time_us), job->retry_time_us);
      if (job->workers_lost > 0) {  // else it keeps the reason that it went back to the queue with
        decisions.waits.push_back({job->uid, "RETRY_BACKOFF",
                                   "Its worker was lost " + std::to_string(job->workers_lost) +
                                       " times without progress; it restarts after a pause."});
      }
      continue;
    }
    const Choice choice = choose_kind(*job, slots, gpu_note);
    const std::vector<const Device*> found = slots.find_free(choice.kind, job->gpus);
    if (found.empty()) {
      decisions.waits.push_back(wait_for_device(*job, choice.kind, slots, gpu_note));
      slots.keep(choice.kind, job->gpus);
      continue;
    }
    StartDecision start{job->uid, {}, choice.reason, choice.message};
    for (const Device* device : found) {
      slots.take(*device);
      start.devices.push_back(device->name);
    }
    decisions.starts.push_back(std::move(start));
  }
  return decisions;
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
