#include "server/scheduler/reasons.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/room.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr size_t kHoldersMax = 3;  // the largest number of jobs that a message names
/// Smaller amounts of memory used by other processes are not mentioned, because they fluctuate.
constexpr int64_t kOthersMentionedBytes = int64_t{64} << 20;

/// Returns about() of the time rounded up to what about() shows, for "within" and "up to".
std::string at_most(int64_t us) {
  constexpr int64_t kSecondUs = 1'000'000, kMinuteUs = 60 * kSecondUs;
  const int64_t unit = us < 2 * kMinuteUs ? kSecondUs : kMinuteUs;
  return about((us + unit - 1) / unit * unit);
}

const char* noun_of(DeviceKind kind) { return kind == DeviceKind::kGpu ? "GPU" : "CPU"; }

// Returns text such as "a GPU", "2 GPUs of one model" or "the CPU".
std::string wanted(DeviceKind kind, int32_t count) {
  if (kind == DeviceKind::kCpu) return "the CPU";
  return count > 1 ? std::to_string(count) + " GPUs of one model" : "a GPU";
}

std::string short_name(const std::string& device) { return device.substr(device.find('/') + 1); }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kHoldersMax; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kHoldersMax) {
    text += " and " + std::to_string(names.size() - kHoldersMax) + " more";
  }
  return text;
}

WaitReason no_device(const Blocked& blocked, const WaitingJob& job, const Fleet& fleet) {
  const int32_t count = Room::count_of(job, blocked.kind);
  const std::string& note = fleet.devices().note;
  const auto any = [&](auto test) {
    return std::ranges::any_of(fleet.groups(), [&](const Fleet::Group& g) {
      return g.suits(blocked.kind, job.asked) && test(g);
    });
  };
  std::string message = "Waits for " + wanted(blocked.kind, count) + ": ";
  if (any([&](const Fleet::Group& g) { return g.soon >= count; })) {
    const auto& devices = fleet.devices().devices;
    if (!std::ranges::any_of(devices, &Device::checking)) {
      return {"WAITING_FOR_DEVICE",
              message + (note.empty() ? "another process uses one exclusively." : note)};
    }
    return {"WAITING_FOR_DEVICE", message + (count > 1 ? "some are" : "it is") +
                                      " being checked before a job starts on " +
                                      (count > 1 ? "them" : "it") + ", which takes a few seconds."};
  }
  if (blocked.kind == DeviceKind::kGpu && !note.empty()) {
    message += note;
  } else if (any([](const Fleet::Group& g) { return g.usable > 0; })) {
    message += "fewer are usable now.";
  } else {
    bool listed = false, is_old = false;
    std::string why;
    for (const Device& d : fleet.devices().devices) {
      if (d.kind != blocked.kind) continue;
      listed = true;
      if (job.asked.bf16 && !has_bf16(d)) {
        is_old = true;
        continue;
      }
      if (why.empty() && !d.reason.empty()) why = " " + short_name(d.name) + ": " + d.reason;
    }
    if (why.empty() && is_old) {
      why = " recipe.precision: bf16 needs one of compute capability 8.0 or later.";
    }
    message += listed ? "none is usable now." + why : "this server has none.";
  }
  return {"NO_DEVICE", std::move(message)};
}

// Returns the reason of a job that needs more memory than its devices would have even without other
// jobs.
WaitReason too_large(const Blocked& blocked, const WaitingJob& job, const Fleet& fleet) {
  const auto count = static_cast<size_t>(Room::count_of(job, blocked.kind));
  const int64_t bytes = job.bytes_alone(blocked.kind);
  const auto left = [](const Device* d) { return d->memory_bytes - d->others_bytes; };
  // Finds the group whose `count` best devices have the most memory left; returns the last of
  // these devices.
  const auto find_best = [&](bool holds_alone) {
    const Device* best = nullptr;
    for (const Fleet::Group& g : fleet.groups()) {
      if (!g.suits(blocked.kind, job.asked)) continue;
      std::vector<const Device*> may;
      for (const Fleet::Index i : g.members) {
        const Device& d = fleet.device(i);
        if (!d.schedulable || (holds_alone && d.memory_bytes < bytes + d.overhead_bytes)) continue;
        may.push_back(&d);
      }
      if (may.size() < count) continue;
      std::ranges::stable_sort(may, std::greater(), left);
      if (best == nullptr || left(may[count - 1]) > left(best)) best = may[count - 1];
    }
    return best;
  };
  const Device* best = find_best(true);
  const bool by_others = best != nullptr;
  if (best == nullptr) best = find_best(false);
  if (best == nullptr) return no_device(blocked, job, fleet);
  const int64_t needed_there = bytes + best->overhead_bytes;
  std::string message = "Needs " + human_bytes(needed_there) + " of memory" +
                        (count > 1 ? " on each of " + std::to_string(count) + " GPUs" : "") + ", " +
                        human_bytes(needed_there - left(best)) + " more than " +
                        short_name(best->name) + " has for it (" + human_bytes(best->memory_bytes);
  if (best->others_bytes > kOthersMentionedBytes) {
    message +=
        ", of which processes other than this server's jobs use " + human_bytes(best->others_bytes);
  }
  return {by_others ? "WAITING_FOR_MEMORY" : "NO_DEVICE", message + ")."};
}

// Returns the jobs on a device with their remaining times: "a (for up to 12 min), b (for how long
// is not known)".
std::string holders(const Fleet::Node& node, int64_t now_us) {
  std::vector<const PlacedJob*> jobs = node.jobs;
  std::ranges::sort(jobs, {}, [&](const PlacedJob* job) {
    return std::pair(Fleet::upper_end(*job, now_us), std::string_view(job->uid));
  });
  std::vector<std::string> texts;
  for (const PlacedJob* job : jobs) {
    const int64_t end = Fleet::upper_end(*job, now_us);
    texts.push_back(job->name + (job->stopping ? " (it is stopping)"
                                 : end == kUnlimited
                                     ? " (for an unknown time)"
                                     : " (for up to " + at_most(end - now_us) + ")"));
  }
  return joined(texts);
}

// Returns a clause that says which resource of a device is insufficient for the job.
std::string lack(const WaitingJob& job, const Device& d, const Fleet::Node& node, int64_t now_us) {
  const std::string name = short_name(d.name);
  const std::string by = node.jobs.empty() ? "" : ", held by " + holders(node, now_us);
  const int64_t bytes = Fleet::bytes_beside(Room::ask_of(job, d.kind), node.jobs);
  if (node.taken) return name + " is used exclusively" + by;
  if (job.asked.exclusive && !node.jobs.empty()) {
    return "it needs a device of its own (exclusive), and " + name + " is in use" + by;
  }
  if (node.slots <= 0) {
    return (d.slots == 1 ? "the only slot" : "each of the " + std::to_string(d.slots) + " slots") +
           " of " + name + " is taken" + by;
  }
  if (node.room_bytes < bytes) {
    std::string text = name + " has room for " +
                       human_bytes(std::max<int64_t>(0, node.room_bytes)) + " of the " +
                       human_bytes(bytes) + " that it needs, " +
                       human_bytes(bytes - std::max<int64_t>(0, node.room_bytes)) + " short" + by;
    if (d.others_bytes > kOthersMentionedBytes) {
      text += "; other processes use " + human_bytes(d.others_bytes);
    }
    return text;
  }
  if (node.cores > 0 && std::min(job.asked.threads, node.cores) > node.cores_free) {
    return "it needs " + std::to_string(std::min(job.asked.threads, node.cores)) + " of " +
           std::to_string(node.cores) + " cores, of which " + std::to_string(node.cores_free) +
           " " + (node.cores_free == 1 ? "is free" : "are free") + by;
  }
  return name + " is free";
}

// Returns the reserved devices; if they are not known yet, all usable devices of the kind.
std::vector<Fleet::Index> devices_of(const Reservation& r, const Fleet& fleet) {
  std::vector<Fleet::Index> devices;
  for (const Spare& spare : r.devices) devices.push_back(spare.device);
  if (!devices.empty()) return devices;
  for (Fleet::Index i = 0; i < std::ssize(fleet.devices().devices); ++i) {
    if (fleet.device(i).kind == r.kind && fleet.node(i).usable) devices.push_back(i);
  }
  return devices;
}

// Returns a sentence about the jobs of lower priority that make room for the job, or why they do
// not.
std::string preemption(const Reservation& r, const WaitingJob& job, const Fleet& fleet,
                       const Policy& policy) {
  if (!r.makes_room.empty()) {
    return " " + joined(r.makes_room) + (r.makes_room.size() == 1 ? " makes" : " make") +
           " room for it.";
  }
  std::vector<std::string> lower;
  for (const Fleet::Index device : devices_of(r, fleet)) {
    for (const PlacedJob* other : fleet.node(device).jobs) {
      if (other->stopping || other->priority >= job.priority) continue;
      if (std::ranges::find(lower, other->name) == lower.end()) lower.push_back(other->name);
    }
  }
  if (lower.empty()) return "";
  const bool one = lower.size() == 1;
  const std::string them = joined(lower) + (one ? " has" : " have") + " a lower priority, but ";
  if (policy.preemption == Preemption::kOff) {
    return " " + them + "this server does not preempt jobs (its preemption is off).";
  }
  return " " + them + (one ? "is" : "are") + " not preempted before " +
         (one ? "it has" : "they have") + " run for " + about(policy.preempt_after_us) +
         ", nor shortly before " + (one ? "its" : "their") + " end.";
}

WaitReason first_in_line(const Reservation& r, const Blocked& blocked, const WaitingJob& job,
                         const Fleet& fleet, const Policy& policy, int64_t now_us) {
  const int32_t count = Room::count_of(job, blocked.kind);
  std::string message = "Waits for " + wanted(blocked.kind, count);
  std::vector<std::string> lacks;
  const std::vector<Fleet::Index> devices = devices_of(r, fleet);
  const auto full =
      std::ranges::find_if(devices, [&](Fleet::Index i) { return !fleet.fits(i, r.ask); });
  message += full == devices.end()
                 ? "."
                 : ": " + lack(job, fleet.device(*full), fleet.node(*full), now_us) + ".";
  if (r.time_us == kUnlimited) {
    message +=
        " It is the next to start there, at an unknown time. Devices that stay idle for it for " +
        about(policy.reserved_idle_max_us) + " are lent to jobs with a known end.";
  } else {
    message +=
        " It is the next to start there, by forecast within " + at_most(r.time_us - now_us) + ".";
  }
  return {"WAITING_FOR_DEVICE", message + preemption(r, job, fleet, policy)};
}

std::string ahead(const Reservation& r, const WaitingJob& job) {
  if (r.priority > job.priority) return "of higher priority";
  if (r.priority == job.priority && r.order < job.order) return "submitted earlier";
  return r.priority == job.priority ? "whose owner has recently used less device time"
                                    : "next to start";
}

WaitReason behind(const Reservation& r, const Blocked& blocked, const WaitingJob& job,
                  const Policy& policy, int64_t now_us) {
  const bool known = r.time_us != kUnlimited;
  const std::string when = known ? "is expected to start within " + at_most(r.time_us - now_us)
                                 : "starts as soon as it can";
  const std::string who = r.name + ", " + ahead(r, job) + ", which " + when;
  if (blocked.why == Blocked::Why::kReserved) {
    const bool rest_known = job.upper_rest_us(blocked.kind) != kUnlimited;
    return {"WAITING_FOR_DEVICE",
            "There is room for it on " + wanted(blocked.kind, 1) + ", but it is reserved for " +
                who + "; " +
                (!rest_known ? "a job without a forecast or a time limit may not start before that."
                 : known     ? "this job would not have ended by then."
                             : "devices that stay idle for that job for " +
                               about(policy.reserved_idle_max_us) +
                               " are lent to others until their forecast end.")};
  }
  return {"WAITING_FOR_DEVICE", "Waits for " +
                                    wanted(blocked.kind, Room::count_of(job, blocked.kind)) +
                                    " behind " + who + "."};
}

/// Adds the name of one drained device that the job could use, unless the message names it already.
WaitReason with_drained(WaitReason why, const DeviceRequest& asked, const Fleet& fleet) {
  for (const Device& device : fleet.devices().devices) {
    const bool may_use = asked.wish == DeviceWish::kAuto ||
                         (asked.wish == DeviceWish::kCpu) == (device.kind == DeviceKind::kCpu);
    if (!device.drained || !may_use) continue;
    const std::string reported = short_name(device.name) + ": " + device.reason;
    if (why.message.find(reported) == std::string::npos) why.message += " " + reported;
    break;
  }
  return why;
}

}  // namespace

std::string about(int64_t us) {
  const int64_t s = std::max<int64_t>(0, (us + 500'000) / 1'000'000);
  const auto with = [](int64_t big, const char* big_unit, int64_t small, const char* small_unit) {
    return std::to_string(big) + " " + big_unit +
           (small > 0 ? " " + std::to_string(small) + " " + small_unit : "");
  };
  if (s < 120) return std::to_string(s) + " s";
  if (s < 7200) return std::to_string((s + 30) / 60) + " min";
  if (s < int64_t{48} * 3600) return with(s / 3600, "h", s % 3600 / 60, "min");
  return with(s / 86400, "days", s % 86400 / 3600, "h");
}

DeviceKind kind_by_rule(const DeviceRequest& asked, bool has_cpu, bool has_gpu) {
  if (asked.wish == DeviceWish::kCpu) return DeviceKind::kCpu;
  if (asked.wish == DeviceWish::kGpu) return DeviceKind::kGpu;
  if (asked.kind_before && (*asked.kind_before == DeviceKind::kGpu ? has_gpu : has_cpu)) {
    return *asked.kind_before;
  }
  return has_gpu ? DeviceKind::kGpu : DeviceKind::kCpu;
}

Choice choose_kind(const DeviceRequest& asked, bool has_cpu, bool has_gpu) {
  const auto assigned = [](DeviceKind kind, std::string message) {
    return Choice{kind, "DEVICE_ASSIGNED", std::move(message), false};
  };
  if (asked.wish == DeviceWish::kCpu)
    return assigned(DeviceKind::kCpu, "The job requested the CPU.");
  if (asked.wish == DeviceWish::kGpu)
    return assigned(DeviceKind::kGpu,
                    "The job requested " + wanted(DeviceKind::kGpu, asked.gpus) + ".");
  if (asked.kind_before && (*asked.kind_before == DeviceKind::kGpu ? has_gpu : has_cpu))
    return assigned(*asked.kind_before, std::string("The same kind of device as before, a ") +
                                            noun_of(*asked.kind_before) +
                                            ", so that the result stays bit-identical.");
  if (has_gpu)
    return assigned(DeviceKind::kGpu, "The job accepts any device, and a GPU is available.");
  // The list of devices explains why no GPU is usable, so the jobs' reasons need not repeat it.
  return Choice{DeviceKind::kCpu, "CPU_FALLBACK",
                "Runs on the CPU: no GPU " + std::string(asked.bf16 ? "with bfloat16 " : "") +
                    "can be used now.",
                false};
}

WaitReason reason_of(const Blocked& blocked, const WaitReasons& all, const WaitingJob& job,
                     const Fleet& fleet, const Policy& policy, int64_t now_us) {
  if (blocked.why == Blocked::Why::kNoDevice) return no_device(blocked, job, fleet);
  if (blocked.why == Blocked::Why::kTooLarge) return too_large(blocked, job, fleet);
  const auto is_own = [&](const Reservation& r) { return r.uid == job.uid; };
  auto r = std::ranges::find_if(all.reservations, is_own);
  WaitReason reason;
  if (r != all.reservations.end()) {
    reason = first_in_line(*r, blocked, job, fleet, policy, now_us);
  } else {
    r = blocked.reservation >= 0
            ? all.reservations.begin() + blocked.reservation
            : std::ranges::find(all.reservations, blocked.kind, &Reservation::kind);
    if (r == all.reservations.end()) {
      return {"WAITING_FOR_DEVICE", "Waits for " +
                                        wanted(blocked.kind, Room::count_of(job, blocked.kind)) +
                                        ": too few have room for it."};
    }
    reason = behind(*r, blocked, job, policy, now_us);
  }
  if (!blocked.note.empty()) reason.message += " " + blocked.note;
  return reason;
}

std::optional<WaitReason> WaitReasons::find(const Queue& queue, const Fleet& fleet,
                                            const Policy& policy, std::string_view uid,
                                            int64_t now_us) const {
  const WaitingJob* job = queue.find(uid);
  if (job == nullptr) return std::nullopt;
  if (draining) {
    return WaitReason{"SERVER_DRAINING",
                      "The server is stopping; the job starts when the server is back."};
  }
  if (in_retry_pause(*job, now_us)) {
    // If no worker was lost, the job keeps the reason with which it returned to the queue.
    if (job->workers_lost == 0) return std::nullopt;
    return WaitReason{"RETRY_BACKOFF", "Its worker was lost " + std::to_string(job->workers_lost) +
                                           " times without progress; it restarts after a pause."};
  }
  const int64_t line = queue.line_of(uid);
  const auto found = std::ranges::find(lines, line, &Blocked::line);
  if (found != lines.end())
    return with_drained(reason_of(*found, *this, *job, fleet, policy, now_us), job->asked, fleet);
  if (line > lines_seen) return std::nullopt;
  Blocked blocked{line, Blocked::Why::kNoRoom, DeviceKind::kCpu, -1, {}};
  blocked.kind = kind_by_rule(job->asked, fleet.will_have_kind(DeviceKind::kCpu, job->asked),
                              fleet.will_have_kind(DeviceKind::kGpu, job->asked));
  if (!fleet.will_have_kind(blocked.kind, job->asked)) {
    blocked.why = Blocked::Why::kNoDevice;
  } else if (!fleet.could_fit_together(blocked.kind, job->asked, job->bytes_alone(blocked.kind))) {
    blocked.why = Blocked::Why::kTooLarge;
  }
  return with_drained(reason_of(blocked, *this, *job, fleet, policy, now_us), job->asked, fleet);
}

}  // namespace trainyard::server
