#include "server/scheduler/reasons.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <utility>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/project_devices.h"
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

// Returns text such as "a, b" or "a and 2 jobs of other projects".
std::string joined(const MentionedJobs& jobs) {
  std::string text = joined(jobs.names);
  if (jobs.others == 0) return text;
  if (!text.empty()) text += " and ";
  return text + (jobs.others == 1 ? kJobOfAnotherProject
                                  : std::to_string(jobs.others) + " jobs of other projects");
}

// The same at the beginning of a sentence.
std::string subject(const MentionedJobs& jobs) {
  std::string text = joined(jobs);
  if (jobs.names.empty() && jobs.others == 1) text.front() = 'A';
  return text;
}

// Returns the name of a job for readers of the project `reader`.
std::string shown_name(const std::string& name, std::string_view project, std::string_view reader) {
  return project == reader ? name : kJobOfAnotherProject;
}

// Returns the devices of this kind that the job's project may use and that there are.
std::vector<Fleet::Index> allowed(DeviceKind kind, const WaitingJob& job, const Fleet& fleet) {
  std::vector<Fleet::Index> devices;
  for (Fleet::Index i = 0; i < std::ssize(fleet.devices().devices); ++i) {
    if (fleet.device(i).kind == kind && fleet.allows(i, job.project)) devices.push_back(i);
  }
  return devices;
}

// Returns a sentence about the devices that the job's project may use; empty if it may use all.
std::string limit_text(DeviceKind kind, const WaitingJob& job, const Fleet& fleet) {
  const std::vector<std::string>* const list = find_list(fleet.project_devices(), job.project);
  if (list == nullptr) return "";
  const std::vector<Fleet::Index> devices = allowed(kind, job, fleet);
  const std::string text = " " + list_text(job.project, *list);
  const bool in_use = !devices.empty() && std::ranges::none_of(devices, [&](Fleet::Index i) {
    return fleet.node(i).jobs.empty();
  });
  const bool lists_others = std::ranges::any_of(*list, [&](const std::string& name) {
    return (name != kAllGpus || kind != DeviceKind::kGpu) &&
           std::ranges::none_of(devices,
                                [&](Fleet::Index i) { return fleet.device(i).name == name; });
  });
  if (!in_use || lists_others) return text + ".";
  return text + "; " +
         (devices.size() == 1   ? "it is"
          : devices.size() == 2 ? "both are"
                                : "all are") +
         " in use.";
}

WaitReason no_device(const Blocked& blocked, const WaitingJob& job, const Fleet& fleet) {
  const int32_t count = Room::count_of(job, blocked.kind);
  const std::string& note = fleet.devices().note;
  const auto any = [&](auto test) {
    return std::ranges::any_of(
        fleet.models(), [&](const Fleet::Model& m) { return m.kind == blocked.kind && test(m); });
  };
  if (find_list(fleet.project_devices(), job.project) != nullptr &&
      !fleet.allows_kind(blocked.kind, job.project)) {
    return {"NO_DEVICE", "Waits for " + wanted(blocked.kind, count) +
                             ": this server has none that " + "the job's project may use."};
  }
  std::string message = "Waits for " + wanted(blocked.kind, count) + ": ";
  if (any([&](const Fleet::Model& m) { return fleet.soon(m, job.asked, job.project) >= count; })) {
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
  } else if (any([&](const Fleet::Model& m) {
               return fleet.usable(m, job.asked, job.project) > 0;
             })) {
    message += "fewer are usable now.";
  } else {
    bool listed = false, is_old = false;
    std::string why;
    for (const Fleet::Index i : allowed(blocked.kind, job, fleet)) {
      const Device& d = fleet.device(i);
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
  // Finds the model whose `count` best devices have the most memory left; returns the last of
  // these devices.
  const auto find_best = [&](bool holds_alone) {
    const Device* best = nullptr;
    for (const Fleet::Model& m : fleet.models()) {
      std::vector<const Device*> may;
      for (const size_t group : m.groups) {
        const Fleet::Group& g = fleet.groups()[group];
        if (!g.suits(blocked.kind, job.asked, job.project)) continue;
        for (const Fleet::Index i : g.members) {
          const Device& d = fleet.device(i);
          if (!d.schedulable || (holds_alone && d.memory_bytes < bytes + d.overhead_bytes)) {
            continue;
          }
          may.push_back(&d);
        }
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

// Returns the jobs on a device with their remaining times: "a (for up to 12 min), b (for an unknown
// time)". `reader` is the project whose members read it.
std::string holders(const Fleet::Node& node, std::string_view reader, int64_t now_us) {
  std::vector<const PlacedJob*> jobs = node.jobs;
  std::ranges::sort(jobs, {}, [&](const PlacedJob* job) {
    return std::pair(Fleet::upper_end(*job, now_us), std::string_view(job->uid));
  });
  std::vector<std::string> texts;
  for (const PlacedJob* job : jobs) {
    const int64_t end = Fleet::upper_end(*job, now_us);
    texts.push_back(shown_name(job->name, job->project, reader) +
                    (job->stopping       ? " (it is stopping)"
                     : end == kUnlimited ? " (for an unknown time)"
                                         : " (for up to " + at_most(end - now_us) + ")"));
  }
  return joined(texts);
}

// Returns a clause that says which resource of a device is insufficient for the job.
std::string lack(const WaitingJob& job, const Device& d, const Fleet::Node& node, int64_t now_us) {
  const std::string name = short_name(d.name);
  const std::string by = node.jobs.empty() ? "" : ", held by " + holders(node, job.project, now_us);
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
    if (fleet.device(i).kind == r.kind && fleet.node(i).usable && fleet.allows(i, r.project)) {
      devices.push_back(i);
    }
  }
  return devices;
}

// Returns a sentence about the jobs of lower priority that make room for the job, or why they do
// not.
std::string preemption(const Reservation& r, const WaitingJob& job, const Fleet& fleet,
                       const Policy& policy) {
  if (r.makes_room.size() > 0) {
    return " " + subject(r.makes_room) + (r.makes_room.size() == 1 ? " makes" : " make") +
           " room for it.";
  }
  std::vector<const PlacedJob*> found;
  MentionedJobs lower;
  for (const Fleet::Index device : devices_of(r, fleet)) {
    for (const PlacedJob* other : fleet.node(device).jobs) {
      if (other->stopping || other->priority >= job.priority) continue;
      if (std::ranges::find(found, other) != found.end()) continue;
      found.push_back(other);
      if (other->project == job.project) {
        lower.names.push_back(other->name);
      } else {
        ++lower.others;
      }
    }
  }
  if (found.empty()) return "";
  const bool one = lower.size() == 1;
  const std::string them = subject(lower) + (one ? " has" : " have") + " a lower priority, but ";
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

// Returns whether the job may use a device that is reserved.
bool may_be_behind(const Reservation& r, const WaitingJob& job, const Fleet& fleet) {
  const std::vector<Fleet::Index> devices = devices_of(r, fleet);
  const auto may_use = [&](Fleet::Index i) { return fleet.allows(i, job.project); };
  return devices.empty() || std::ranges::any_of(devices, may_use);
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
  const std::string who =
      shown_name(r.name, r.project, job.project) + ", " + ahead(r, job) + ", which " + when;
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
WaitReason with_drained(WaitReason why, const WaitingJob& job, const Fleet& fleet) {
  const DeviceWish wish = job.asked.wish;
  for (Fleet::Index i = 0; i < std::ssize(fleet.devices().devices); ++i) {
    const Device& device = fleet.device(i);
    const bool may_use = fleet.allows(i, job.project) &&
                         (wish == DeviceWish::kAuto ||
                          (wish == DeviceWish::kCpu) == (device.kind == DeviceKind::kCpu));
    if (!device.drained || !may_use) continue;
    const std::string reported = short_name(device.name) + ": " + device.reason;
    if (why.message.find(reported) == std::string::npos) why.message += " " + reported;
    break;
  }
  return why;
}

/// Adds what the devices say about themselves, and which of them the job's project may use.
WaitReason complete(WaitReason why, DeviceKind kind, const WaitingJob& job, const Fleet& fleet) {
  why = with_drained(std::move(why), job, fleet);
  why.message += limit_text(kind, job, fleet);
  return why;
}

std::string utc_text(int64_t time_us) {
  const std::time_t seconds = time_us / 1'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts)};
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

DeviceKind kind_by_rule(const DeviceRequest& asked, const Fleet::Kinds& has) {
  if (asked.wish == DeviceWish::kCpu) return DeviceKind::kCpu;
  if (asked.wish == DeviceWish::kGpu) return DeviceKind::kGpu;
  if (asked.kind_before && (*asked.kind_before == DeviceKind::kGpu ? has.gpu : has.cpu)) {
    return *asked.kind_before;
  }
  return has.gpu ? DeviceKind::kGpu : DeviceKind::kCpu;
}

Choice choose_kind(const DeviceRequest& asked, const Fleet::Kinds& has) {
  const auto assigned = [](DeviceKind kind, std::string message) {
    return Choice{kind, "DEVICE_ASSIGNED", std::move(message), false};
  };
  if (asked.wish == DeviceWish::kCpu)
    return assigned(DeviceKind::kCpu, "The job requested the CPU.");
  if (asked.wish == DeviceWish::kGpu)
    return assigned(DeviceKind::kGpu,
                    "The job requested " + wanted(DeviceKind::kGpu, asked.gpus) + ".");
  if (asked.kind_before && (*asked.kind_before == DeviceKind::kGpu ? has.gpu : has.cpu))
    return assigned(*asked.kind_before, std::string("The same kind of device as before, a ") +
                                            noun_of(*asked.kind_before) +
                                            ", so that the result stays bit-identical.");
  if (has.gpu)
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
            : std::ranges::find_if(all.reservations, [&](const Reservation& other) {
                return other.kind == blocked.kind && may_be_behind(other, job, fleet);
              });
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

std::optional<WaitReason> quota_reason(const Quotas& quotas, const WaitingJob& job,
                                       int64_t now_us) {
  const QuotaNeed need = job.quota_need();
  const DeviceQuota* const quota = quotas.find_exceeded(need);
  if (quota == nullptr) return std::nullopt;
  const int64_t needed = need.of(quota->kind);
  const std::optional<int64_t> frees_us = Quotas::frees_us(*quota, need);
  const std::string of = quota->scope.text() + ", which is " + amount_text(quota->kind, quota->max);
  const std::string used = amount_text(quota->kind, quota->used);
  if (quota->kind == QuotaKind::kDevices) {
    std::string message = "Waits for the quota devices of " + of + " at once: " + used +
                          (quota->used == 1 ? " is" : " are") + " in use, and the job needs " +
                          std::to_string(needed) + ".";
    if (needed > quota->max) {
      message += " It cannot start unless the quota is raised.";
    } else if (frees_us) {
      message += " By forecast enough are free in " + about(*frees_us - now_us) + ".";
    }
    return WaitReason{"QUOTA_DEVICES", message};
  }
  std::string message = "Waits for the quota device_hours of " + of + " in " +
                        std::to_string(kQuotaDays) + " days: " + used + " are used or reserved";
  message +=
      needed > 0 ? ", and the job needs about " + amount_text(quota->kind, needed) + "." : ".";
  message += frees_us ? " Enough of them are older than that at " + utc_text(*frees_us) + "."
                      : " It cannot start unless the quota is raised.";
  return WaitReason{"QUOTA_DEVICE_HOURS", message};
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
  if (auto held = quota_reason(quotas, *job, now_us)) return held;
  const int64_t line = queue.line_of(uid);
  const auto found = std::ranges::find(lines, line, &Blocked::line);
  if (found != lines.end())
    return complete(reason_of(*found, *this, *job, fleet, policy, now_us), found->kind, *job,
                    fleet);
  if (line > lines_seen) return std::nullopt;
  Blocked blocked{line, Blocked::Why::kNoRoom, DeviceKind::kCpu, -1, {}};
  blocked.kind = kind_by_rule(job->asked, fleet.kinds(job->asked, job->project));
  if (!fleet.will_have_kind(blocked.kind, job->asked, job->project)) {
    blocked.why = Blocked::Why::kNoDevice;
  } else if (!fleet.could_fit_together(blocked.kind, job->asked, job->project,
                                       job->bytes_alone(blocked.kind))) {
    blocked.why = Blocked::Why::kTooLarge;
  }
  return complete(reason_of(blocked, *this, *job, fleet, policy, now_us), blocked.kind, *job,
                  fleet);
}

}  // namespace trainyard::server
