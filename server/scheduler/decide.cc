#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "server/scheduler/fleet.h"
#include "server/scheduler/order.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/reasons.h"
#include "server/scheduler/room.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

/// Jobs of one line that are looked at in vain; of all lines together behind their first.
constexpr int kMissesMax = 8;
constexpr int kLooksMax = 128;
/// Auto jobs for which the kinds of device are compared in one look.
constexpr int kComparisonsMax = 16;
/// Jobs of a line that are walked over to see how many are ahead.
constexpr int kAheadMax = 32;

/// The kind of device for a job, and what was weighed.
struct Pick {
  DeviceKind kind;
  std::optional<Choice> weighed;
};

class Look {
 public:
  Look(const Queue& queue, Fleet& fleet, const Shares& shares, const Policy& policy, int64_t now_us)
      : queue_(queue), now_us_(now_us), room_(fleet, policy, now_us), order_(shares, now_us) {}

  Decisions decide();

 private:
  const Fleet& fleet() const { return room_.fleet(); }
  void gather();
  bool skip_resting(Head& head) const;
  bool could_ever(const Head& head) const;
  Choice choose_by_rule(const WaitingJob& job) const;
  Pick choose(const WaitingJob& job);
  std::optional<Choice> compare(const WaitingJob& job);
  int64_t gpu_start_us(const WaitingJob& job) const;
  void look_at(Head head);
  bool start(const WaitingJob& job, const Pick& pick, const Room::Found& found);
  Blocked why(const WaitingJob& job, const Pick& pick, const Room::Found& found);

  const Queue& queue_;
  const int64_t now_us_;
  Room room_;
  Order order_;
  int looks_ = 0, comparisons_ = 0;
  Decisions decisions_;
};

// ---- The order -----------------------------------------------------------------------------

bool Look::skip_resting(Head& head) const {
  // One whose last process is still there waits for its end.
  while (!head.over() &&
         (is_resting(head.first(), now_us_) || fleet().find(head.first().uid) != nullptr)) {
    ++head.job;
  }
  return !head.over();
}

// Else it would hide those behind it, for which devices could be kept.
bool Look::could_ever(const Head& head) const {
  const WaitingJob& job = head.first();
  const DeviceKind kind = choose_by_rule(job).kind;
  return fleet().could_fit_together(kind, Room::count_of(job, kind), job.on(kind).bytes);
}

// Lines that can start nothing, because no device that they may use has so much room, are not
// looked at: but for the first of them, which may have a reservation.
void Look::gather() {
  const std::array<int64_t, 2> most = {fleet().most_room(DeviceKind::kCpu),
                                       fleet().most_room(DeviceKind::kGpu)};
  std::array<std::optional<Head>, 4> first;  // by wish
  for (const auto& [of, line] : queue_.lines()) {
    Head head{&of, &line, line.jobs.begin(), order_.usage(of.owner), 0};
    const bool may_start =
        (of.asked.wish != DeviceWish::kGpu && Queue::floor_of(of.cpu_bucket) <= most[0]) ||
        (of.asked.wish != DeviceWish::kCpu && Queue::floor_of(of.gpu_bucket) <= most[1]);
    if (may_start) {
      if (skip_resting(head)) order_.push(head);
      continue;
    }
    std::optional<Head>& best = first[static_cast<size_t>(of.asked.wish)];
    if (best && is_behind(head, *best)) continue;
    if (skip_resting(head) && (!best || is_behind(*best, head)) && could_ever(head)) best = head;
  }
  for (const std::optional<Head>& head : first) {
    if (head) order_.push(*head);
  }
}

// ---- The kind of device --------------------------------------------------------------------

int64_t Look::gpu_start_us(const WaitingJob& job) const {
  if (fleet().most_room(DeviceKind::kGpu) < 0) {
    const int64_t first = room_.fit_time(job, DeviceKind::kGpu);
    if (first == kUnlimited) return kUnlimited;
    double ahead_us = 0;
    for (const auto& [of, line] : queue_.lines()) {
      if (of.asked.wish == DeviceWish::kCpu) continue;
      const Queue::Before before;
      if (before(*line.jobs.rbegin(), &job)) {
        ahead_us += line.gpu_us;
        continue;
      }
      int walked = 0;
      for (const WaitingJob* other : line.jobs) {
        if (!before(other, &job) || ++walked > kAheadMax) break;
        ahead_us += static_cast<double>(other->on_gpu.rest.likely_us) * other->asked.gpus;
      }
    }
    int32_t gpus = 0;
    for (const Fleet::Group& g : fleet().groups()) {
      if (g.kind == DeviceKind::kGpu) gpus += g.usable;
    }
    return first + static_cast<int64_t>(ahead_us / std::max(1, gpus));
  }
  return room_.fit_time(job, DeviceKind::kGpu);
}

/// Where it ends first, if both are known and the CPU could take it now.
std::optional<Choice> Look::compare(const WaitingJob& job) {
  if (!job.on_cpu.rest.known() || !job.on_gpu.rest.known()) return std::nullopt;
  if (!fleet().has_kind(DeviceKind::kGpu, 1) || ++comparisons_ > kComparisonsMax)
    return std::nullopt;
  if (room_.find(job, DeviceKind::kCpu).devices.empty()) return std::nullopt;
  const int64_t start_us = gpu_start_us(job);
  if (start_us == kUnlimited) return std::nullopt;
  const int64_t wait_us = start_us - now_us_;
  const int64_t on_gpu_us = wait_us + job.on_gpu.rest.likely_us;
  const int64_t on_cpu_us = job.on_cpu.rest.likely_us;
  const std::string gpu = "on a GPU it would end in about " + about(on_gpu_us) +
                          (wait_us > 0 ? ", of which it would wait " + about(wait_us) : "");
  if (on_cpu_us < on_gpu_us) {
    return Choice{
        DeviceKind::kCpu, "DEVICE_ASSIGNED",
        "The CPU: it is expected to end there in about " + about(on_cpu_us) + "; " + gpu + ".",
        true};
  }
  return Choice{DeviceKind::kGpu, "DEVICE_ASSIGNED",
                "A GPU: it is expected to end there in about " + about(on_gpu_us) +
                    (wait_us > 0 ? ", with the wait" : "") + "; on the CPU in about " +
                    about(on_cpu_us) + ".",
                true};
}

Choice Look::choose_by_rule(const WaitingJob& job) const {
  return choose_kind(job.asked, fleet().will_have_kind(DeviceKind::kCpu, 1),
                     fleet().will_have_kind(DeviceKind::kGpu, 1), fleet().devices().note);
}

Pick Look::choose(const WaitingJob& job) {
  if (job.asked.wish == DeviceWish::kCpu) return {DeviceKind::kCpu, std::nullopt};
  if (job.asked.wish == DeviceWish::kGpu) return {DeviceKind::kGpu, std::nullopt};
  if (!job.asked.kind_before) {
    if (std::optional<Choice> choice = compare(job)) return {choice->kind, std::move(choice)};
  }
  return {choose_by_rule(job).kind, std::nullopt};
}

// ---- One job after another -----------------------------------------------------------------

bool Look::start(const WaitingJob& job, const Pick& pick, const Room::Found& found) {
  const Choice choice = pick.weighed ? *pick.weighed : choose_by_rule(job);
  StartDecision start{job.uid, {}, choice.reason, choice.message};
  for (const Fleet::Index i : found.devices) start.devices.push_back(fleet().device(i).name);
  room_.take(job, found.devices);
  order_.charge(job.owner, found.devices.size());
  decisions_.starts.push_back(std::move(start));
  return decisions_.starts.size() < kStartsMax;
}

Blocked Look::why(const WaitingJob& job, const Pick& pick, const Room::Found& found) {
  Blocked blocked;
  blocked.kind = pick.kind;
  if (pick.weighed) blocked.note = pick.weighed->message;
  const int32_t count = Room::count_of(job, pick.kind);
  if (!fleet().will_have_kind(pick.kind, count)) {
    blocked.why = Blocked::Why::kNoDevice;
  } else if (!fleet().could_fit(pick.kind, count, job.on(pick.kind).bytes)) {
    blocked.why = Blocked::Why::kTooLarge;
  } else {
    // Also while the devices are being checked: they are kept for it.
    blocked.reservation = room_.reserve(job, pick.kind);
    blocked.why = !fleet().has_kind(pick.kind, count) ? Blocked::Why::kNoDevice
                  : found.reservation >= 0            ? Blocked::Why::kReserved
                                                      : Blocked::Why::kNoRoom;
  }
  return blocked;
}

void Look::look_at(Head head) {
  const WaitingJob& job = head.first();
  const Pick pick = choose(job);
  const Room::Found found = room_.find(job, pick.kind);
  if (!found.devices.empty()) {
    if (!start(job, pick, found)) {
      decisions_.more = true;
      return;
    }
  } else {
    if (head.misses == 0) {
      Blocked blocked = why(job, pick, found);
      blocked.line = head.line->id;
      decisions_.waits.lines.push_back(std::move(blocked));
    }
    // Behind a job that found nothing: only if a smaller or a shorter one may still find something.
    if (++head.misses >= kMissesMax || ++looks_ >= kLooksMax) return;
    if (Queue::floor_of(pick.kind == DeviceKind::kGpu ? head.of->gpu_bucket : head.of->cpu_bucket) >
        fleet().most_room(pick.kind)) {
      return;
    }
  }
  ++head.job;
  if (!skip_resting(head)) return;
  head.usage = order_.usage(head.of->owner);
  order_.push(head);
}

Decisions Look::decide() {
  decisions_.wake_time_us = queue_.next_retry_us(now_us_);
  gather();
  while (!order_.empty() && !decisions_.more) look_at(order_.pop());
  decisions_.preempts = room_.take_preempts();
  decisions_.waits.lines_seen = queue_.last_line();
  decisions_.waits.reservations = room_.take_reservations();
  if (room_.wake_time_us() > 0) {
    decisions_.wake_time_us =
        std::min(decisions_.wake_time_us.value_or(kUnlimited), room_.wake_time_us());
  }
  return std::move(decisions_);
}

}  // namespace

bool is_resting(const WaitingJob& job, int64_t now_us) {
  return job.retry_time_us > now_us && job.retry_time_us - now_us <= kRetryPauseMaxUs;
}

Decisions decide(const Queue& queue, Fleet& fleet, const Shares& shares, const Policy& policy,
                 int64_t now_us) {
  if (policy.draining) {
    Decisions decisions;
    decisions.waits.draining = true;
    return decisions;
  }
  return Look(queue, fleet, shares, policy, now_us).decide();
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
