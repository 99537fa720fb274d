#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/order.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/quotas.h"
#include "server/scheduler/reasons.h"
#include "server/scheduler/room.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

/// A pass gives up on a line after kMissesMax jobs that find no room. kTriesMax bounds the total
/// number of further jobs that the pass tries after a job without room.
constexpr int kMissesMax = 8;
constexpr int kTriesMax = 128;
/// The largest number of lines without room that a pass still considers, for each group of devices.
constexpr size_t kBlockedMax = 4;
/// The largest number of auto jobs for which a pass computes when a GPU becomes free. Later auto
/// jobs use the last computed time, plus the time of the queued jobs before them.
constexpr int kComparisonsMax = 16;

/// The kind of device for a job, and the comparison by forecasts if there was one.
struct Pick {
  DeviceKind kind;
  std::optional<Choice> weighed;
};

class SchedulingPass {
 public:
  SchedulingPass(const Queue& queue, Fleet& fleet, const Shares& shares, const Policy& policy,
                 int64_t now_us, Quotas quotas)
      : queue_(queue),
        now_us_(now_us),
        room_(fleet, policy, now_us),
        order_(shares, now_us),
        quotas_(std::move(quotas)) {}

  Decisions decide();

 private:
  const Fleet& fleet() const { return room_.fleet(); }
  /// Returns the part of a job's project on which the kinds of device for it depend: empty for
  /// projects that may use all devices.
  std::string_view limited(const std::string& project) const {
    return find_list(fleet().project_devices(), project) == nullptr ? std::string_view() : project;
  }
  const Fleet::Kinds& kinds(const DeviceRequest& asked, const std::string& project);
  void gather();
  bool skip_retry_pauses(Head& head) const;
  bool has_old_process(const WaitingJob& job) const;
  bool skip_exceeded(Head& head);
  Choice choose_by_rule(const WaitingJob& job);
  Pick choose(const WaitingJob& job);
  std::optional<Choice> compare(const WaitingJob& job);
  int64_t gpu_start_us(const WaitingJob& job);
  void advance(Head head);
  void try_head(Head head);
  bool start(const WaitingJob& job, const Pick& pick, const Room::Found& found);
  Blocked why(const WaitingJob& job, const Pick& pick, const Room::Found& found);

  const Queue& queue_;
  const int64_t now_us_;
  Room room_;
  Order order_;
  Quotas quotas_;
  int tries_ = 0, comparisons_ = 0;
  // By limited(): the kinds of device for jobs without and with DeviceRequest::bf16, and the result
  // of the last comparison.
  std::map<std::string, std::array<std::optional<Fleet::Kinds>, 2>, std::less<>> kinds_;
  std::map<std::string, Room::FitTime, std::less<>> gpu_first_;
  std::vector<const WaitingJob*> started_;
  Decisions decisions_;
};

const Fleet::Kinds& SchedulingPass::kinds(const DeviceRequest& asked, const std::string& project) {
  const std::string_view key = limited(project);
  auto known = kinds_.find(key);
  if (known == kinds_.end()) known = kinds_.try_emplace(std::string(key)).first;
  std::optional<Fleet::Kinds>& of = known->second[asked.bf16 ? 1 : 0];
  if (!of) of = fleet().kinds({.bf16 = asked.bf16}, key);
  return *of;
}

// ---- The order -----------------------------------------------------------------------------

bool SchedulingPass::skip_retry_pauses(Head& head) const {
  while (!head.over() && in_retry_pause(head.first(), now_us_)) head.advance();
  return !head.over();
}

// Returns whether a process of the job's last attempt still occupies devices; then the job waits
// for its end.
bool SchedulingPass::has_old_process(const WaitingJob& job) const {
  return fleet().find(job.uid) != nullptr;
}

// Skips jobs that a quota holds back. All jobs of a line need as many devices, so a quota of
// devices holds back the whole line; the need for device-hours differs, so the next jobs are looked
// at. Returns whether a job is left.
bool SchedulingPass::skip_exceeded(Head& head) {
  if (quotas_.empty()) return true;
  for (int seen = 0; seen < kMissesMax; ++seen) {
    const QuotaNeed need = head.first().quota_need();
    const DeviceQuota* const quota = quotas_.find_exceeded(need);
    if (quota == nullptr) return true;
    if (quota->kind == QuotaKind::kDevices) return false;  // a job's end starts a pass anyway
    if (const std::optional<int64_t> frees_us = Quotas::frees_us(*quota, need)) {
      decisions_.wake_time_us = std::min(decisions_.wake_time_us.value_or(kUnlimited), *frees_us);
    }
    head.advance();
    if (!skip_retry_pauses(head)) return false;
  }
  return false;
}

// Collects the lines for this pass. A line whose jobs need more memory than any usable device has
// free is left out, except for a few that may get a reservation. The first job of a line reserves
// at most one group of devices. So it is enough to keep, for each group, the first jobs of as many
// lines as there are groups, if the group could hold them when idle.
void SchedulingPass::gather() {
  const std::array<int64_t, 2> most = {fleet().most_room(DeviceKind::kCpu),
                                       fleet().most_room(DeviceKind::kGpu)};
  const std::span<const Fleet::Group> groups = fleet().groups();
  const size_t heads_max = std::min(groups.size(), kBlockedMax);
  std::vector<std::vector<Head>> blocked(4 *
                                         groups.size());  // by wish and group; the next job first
  std::vector<Head> heads;
  for (const Queue::Front& front : queue_.fronts()) {
    Head head(front, order_.usage(front.of->owner));
    if (front.retry_time_us > now_us_ && !skip_retry_pauses(head)) continue;
    if (!skip_exceeded(head)) continue;
    const bool may_start = (front.wish != DeviceWish::kGpu && front.cpu_floor <= most[0]) ||
                           (front.wish != DeviceWish::kCpu && front.gpu_floor <= most[1]);
    if (may_start) {
      heads.push_back(head);
      continue;
    }
    const DeviceKind kind =
        kind_by_rule(front.of->asked, kinds(front.of->asked, front.of->project));
    for (size_t group = 0; group < groups.size(); ++group) {
      if (!groups[group].suits(kind, front.of->asked, front.of->project)) continue;
      std::vector<Head>& best = blocked[static_cast<size_t>(front.wish) * groups.size() + group];
      const auto is_next = [&] { return best.size() < heads_max || is_behind(best.back(), head); };
      if (!is_next()) continue;
      while (!head.over() && has_old_process(head.first())) {
        head.advance();
        if (!skip_retry_pauses(head)) break;
      }
      if (head.over()) break;
      const WaitingJob& job = head.first();
      // A job that devices of this model can never hold must not displace jobs for which devices
      // could be reserved.
      const Fleet::Model& model = fleet().models()[groups[group].model];
      if (!is_next() ||
          !fleet().could_fit_together(model, job.asked, job.project, job.bytes_alone(kind))) {
        continue;
      }
      if (best.size() == heads_max) best.pop_back();
      const auto after = [](const Head& a, const Head& b) { return is_behind(b, a); };
      best.insert(std::ranges::upper_bound(best, head, after), head);
    }
  }
  std::set<const Queue::Line*> known;
  for (const std::vector<Head>& best : blocked) {
    for (const Head& head : best) {
      if (known.insert(head.line).second) heads.push_back(head);
    }
  }
  order_.push(std::move(heads));
}

// ---- The kind of device --------------------------------------------------------------------

// Estimates when the job could start on a GPU, from the upper forecasts of running jobs and the
// likely forecasts of the jobs before it in the queue.
int64_t SchedulingPass::gpu_start_us(const WaitingJob& job) {
  if (!room_.find(job, DeviceKind::kGpu).devices.empty()) return now_us_;
  const auto [known, fresh] = gpu_first_.try_emplace(std::string(limited(job.project)));
  Room::FitTime& first = known->second;
  if (++comparisons_ <= kComparisonsMax || fresh) first = room_.fit_time(job, DeviceKind::kGpu);
  if (first.time_us == kUnlimited) return kUnlimited;
  double ahead_us = queue_.gpu_us_before(job);
  const auto placed = [&](const WaitingJob* other) {  // its GPU time is already part of `first`
    if (other != nullptr && Queue::Before()(other, &job)) ahead_us -= Queue::gpu_us_of(*other);
  };
  for (const WaitingJob* other : started_) placed(other);
  if (first.behind >= 0) placed(queue_.find(room_.reservation(first.behind).uid));
  int32_t gpus = 0;
  for (const Fleet::Group& g : fleet().groups()) {
    if (g.kind == DeviceKind::kGpu) gpus += g.usable;
  }
  return first.time_us + static_cast<int64_t>(std::max(0.0, ahead_us) / std::max(1, gpus));
}

/// Chooses the kind of device on which the job is expected to end first. Returns nothing unless
/// both forecasts are known and the CPU has room now.
std::optional<Choice> SchedulingPass::compare(const WaitingJob& job) {
  if (!job.on_cpu.rest.known() || !job.on_gpu.rest.known()) return std::nullopt;
  if (!fleet().has_kind(DeviceKind::kGpu, job.asked, job.project)) return std::nullopt;
  if (room_.find(job, DeviceKind::kCpu).devices.empty()) return std::nullopt;
  const int64_t start_us = gpu_start_us(job);
  if (start_us == kUnlimited) return std::nullopt;
  const int64_t wait_us = start_us - now_us_;
  const int64_t on_gpu_us = wait_us + job.on_gpu.rest.likely_us;
  const int64_t on_cpu_us = job.on_cpu.rest.likely_us;
  const std::string gpu = "on a GPU in about " + about(on_gpu_us) +
                          (wait_us > 0 ? ", including a wait of " + about(wait_us) : "");
  if (on_cpu_us < on_gpu_us) {
    return Choice{
        DeviceKind::kCpu, "DEVICE_ASSIGNED",
        "The CPU: the job is expected to end there in about " + about(on_cpu_us) + "; " + gpu + ".",
        true};
  }
  return Choice{DeviceKind::kGpu, "DEVICE_ASSIGNED",
                "A GPU: the job is expected to end there in about " + about(on_gpu_us) +
                    (wait_us > 0 ? ", including the wait" : "") + "; on the CPU in about " +
                    about(on_cpu_us) + ".",
                true};
}

Choice SchedulingPass::choose_by_rule(const WaitingJob& job) {
  return choose_kind(job.asked, kinds(job.asked, job.project));
}

Pick SchedulingPass::choose(const WaitingJob& job) {
  if (job.asked.wish == DeviceWish::kCpu) return {DeviceKind::kCpu, std::nullopt};
  if (job.asked.wish == DeviceWish::kGpu) return {DeviceKind::kGpu, std::nullopt};
  if (!job.asked.kind_before) {
    if (std::optional<Choice> choice = compare(job)) return {choice->kind, std::move(choice)};
  }
  return {kind_by_rule(job.asked, kinds(job.asked, job.project)), std::nullopt};
}

// ---- Decisions about single jobs -----------------------------------------------------------

bool SchedulingPass::start(const WaitingJob& job, const Pick& pick, const Room::Found& found) {
  const Choice choice = pick.weighed ? *pick.weighed : choose_by_rule(job);
  StartDecision start{job.uid, {}, choice.reason, choice.message};
  for (const Fleet::Index i : found.devices) start.devices.push_back(fleet().device(i).name);
  room_.take(job, found.devices);
  quotas_.charge(job.quota_need());
  order_.charge(job.owner, found.devices.size());
  decisions_.starts.push_back(std::move(start));
  started_.push_back(&job);
  return decisions_.starts.size() < kStartsMax;
}

Blocked SchedulingPass::why(const WaitingJob& job, const Pick& pick, const Room::Found& found) {
  Blocked blocked;
  blocked.kind = pick.kind;
  if (pick.weighed) blocked.note = pick.weighed->message;
  if (!fleet().will_have_kind(pick.kind, job.asked, job.project)) {
    blocked.why = Blocked::Why::kNoDevice;
  } else if (!fleet().could_fit_together(pick.kind, job.asked, job.project,
                                         job.bytes_alone(pick.kind))) {
    blocked.why = Blocked::Why::kTooLarge;
  } else {
    // Also reserves devices that are still being checked.
    blocked.reservation = room_.reserve(job, pick.kind);
    const bool has_kind = fleet().has_kind(pick.kind, job.asked, job.project);
    blocked.why = !has_kind                ? Blocked::Why::kNoDevice
                  : found.reservation >= 0 ? Blocked::Why::kReserved
                                           : Blocked::Why::kNoRoom;
  }
  return blocked;
}

void SchedulingPass::advance(Head head) {
  head.advance();
  if (!skip_retry_pauses(head)) return;
  head.usage = order_.usage(head.of->owner);
  order_.push(head);
}

void SchedulingPass::try_head(Head head) {
  if (!skip_exceeded(head)) return;
  const WaitingJob& job = head.first();
  const Pick pick = choose(job);
  const Room::Found found = room_.find(job, pick.kind);
  const bool has_any = !found.devices.empty() || room_.may_reserve(job, pick.kind);
  if (has_any && has_old_process(job)) return advance(head);
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
    // After a job without room, the line continues only if a smaller or shorter job in it may still
    // fit.
    if (++head.misses >= kMissesMax || ++tries_ >= kTriesMax) return;
    if (Queue::floor_of(pick.kind == DeviceKind::kGpu ? head.of->gpu_bucket : head.of->cpu_bucket) >
        fleet().most_room(pick.kind)) {
      return;
    }
  }
  advance(head);
}

Decisions SchedulingPass::decide() {
  decisions_.wake_time_us = queue_.next_retry_us(now_us_);
  gather();
  while (!order_.empty() && !decisions_.more) try_head(order_.pop());
  decisions_.preempts = room_.take_preempts();
  decisions_.waits.lines_seen = queue_.last_line();
  decisions_.waits.reservations = room_.take_reservations();
  decisions_.waits.quotas = std::move(quotas_);
  if (room_.wake_time_us() > 0) {
    decisions_.wake_time_us =
        std::min(decisions_.wake_time_us.value_or(kUnlimited), room_.wake_time_us());
  }
  room_.give_back();
  return std::move(decisions_);
}

}  // namespace

bool in_retry_pause(const WaitingJob& job, int64_t now_us) {
  return job.retry_time_us > now_us && job.retry_time_us - now_us <= kRetryPauseMaxUs;
}

Decisions decide(const Queue& queue, Fleet& fleet, const Shares& shares, const Policy& policy,
                 int64_t now_us, Quotas quotas) {
  if (policy.draining) {
    Decisions decisions;
    decisions.waits.draining = true;
    return decisions;
  }
  return SchedulingPass(queue, fleet, shares, policy, now_us, std::move(quotas)).decide();
}

}  // namespace trainyard::server
