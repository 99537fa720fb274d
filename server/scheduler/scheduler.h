// server/scheduler/scheduler.h: decides which jobs start, on which devices, which jobs are
// preempted, and why the others wait.
//
// decide() is pure: it uses no clock, no threads and no I/O, so that the same code runs in the
// daemon, in tests and in a simulator. It works on three indexes that are updated with each change:
// the waiting jobs (queue.h), the devices with the jobs on them (fleet.h) and each owner's use of
// devices (shares.h).
//
// Order      Higher priority first; then the owner with less recent use, if the policy has a
//            half-life; then the order of submission. A job in a retry pause after a lost worker
//            does not delay other jobs.
// Projects   A project's jobs use only the devices that an operator allows it
//            (project_devices.h), by default all. Messages name another job only to readers of the
//            same project.
// Room       Jobs share a device as long as three conditions hold. The device's memory, minus the
//            memory used by other processes, holds the planned bytes of each job and the overhead
//            of its process. A file that several jobs map on the CPU counts once. On the CPU the
//            jobs' threads are at most its cores; a job with more threads than cores has the CPU
//            alone. The number of jobs is at most the slots. An exclusive job shares with no other
//            job. Idle devices are used first, then those with the least room.
// Kind       A job that requests cpu or gpu gets that kind. Several GPUs are of one model and start
//            together or not at all. An auto job gets the kind on which it is expected to end
//            first. Its expected wait includes the running jobs, the job for which a GPU is
//            reserved and the jobs before it in the queue. Without forecasts it gets a GPU if one
//            works, busy or not, otherwise the CPU. After a first attempt a job keeps its kind
//            while such a device exists, because another kind gives other bits.
// Backfill   The first job that finds no room on a kind of device (GPUs of one model that the same
//            projects may use are a kind) gets a reservation there. It starts at the time at which
//            the job fits by the upper forecasts of the running jobs. Other jobs may start there
//            earlier only if they end by then according to their upper forecasts, or use resources
//            that the reserved job does not need. The extra time that an overdue job gets is not
//            available to them, or they would be overdue next. A job without a forecast may not
//            start earlier unless it has a time limit, which serves as an upper forecast. If the
//            reserved time is unknown, each device is reserved for at most the policy's time since
//            a job last left it. Then it is lent to jobs with an upper forecast, and reserved again
//            once one of them leaves. So the first job starts, at the latest, when the jobs of
//            unknown end have left and the jobs that were lent devices until then have reached
//            their upper forecasts.
// Preemption If the policy allows it, a job of strictly higher priority that finds no room has
//            others put back into the queue: those of the lowest priority first, then those that
//            lose the least work. A job is not preempted before it has run for the policy's time,
//            nor if it ends soon anyway.
// Quotas     A job whose project or owner has used up a quota (quotas.h) does not start, gets no
//            reservation and preempts nobody, so it does not delay others.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/scheduler/quotas.h"
#include "server/store/job.h"
#include "src/base/result.h"
#include "src/planning/devices.h"

namespace trainyard::server {

/// The longest pause after a lost worker (retry.h respects it).
inline constexpr int64_t kRetryPauseMaxUs = 75'000'000;
/// Stands for unlimited bytes, or for a time that is unknown or never comes.
inline constexpr int64_t kUnlimited = int64_t{1} << 62;
/// The largest number of jobs that one call of decide() starts.
inline constexpr size_t kStartsMax = 256;

/// A duration or a point in time with its range, in microseconds. 0: unknown.
struct Range {
  int64_t low_us = 0, likely_us = 0, high_us = 0;
  bool known() const { return high_us > 0; }
};

/// The devices that a job requests. Jobs with equal requests wait for the same reason.
struct DeviceRequest {
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;                            // above 1 only with kGpu
  std::optional<DeviceKind> kind_before = {};  // kind of the last attempt's devices
  bool exclusive = false;       // true: its devices run no other job at the same time
  int32_t threads = 1;          // threads on the CPU; not counted on a GPU
  bool bf16 = false;            // a GPU must have bfloat16
  MappedFileBrief mapped = {};  // the file that the job maps if it runs on the CPU
  int32_t count_of(DeviceKind kind) const { return kind == DeviceKind::kGpu ? gpus : 1; }
  auto operator<=>(const DeviceRequest&) const = default;
};

/// The memory and time that a job needs on devices of one kind.
struct Need {
  // Planned bytes per device, without the overhead of the process and a mapped file.
  int64_t bytes = 0;
  Range rest;  // time from its next start to its end
};

struct WaitingJob {
  std::string uid;
  std::string name;          // the job's ID, for messages
  std::string owner;         // for fair share
  std::string cluster = {};  // requested cluster; empty: the server's own devices
  int64_t order = 0;         // rank in the order of submission; unique
  int32_t priority = 0;
  DeviceRequest asked;
  Need on_cpu, on_gpu;
  int32_t workers_lost = 0;
  int64_t retry_time_us = 0;         // the job does not start before this time
  int64_t rest_max_us = kUnlimited;  // remaining run time by its time limit
  int64_t wait_since_us = 0;         // when it entered the queue or returned to it
  int32_t device_count = 1;          // on a cluster, of all nodes
  std::string project = {};
  const Need& on(DeviceKind kind) const { return kind == DeviceKind::kGpu ? on_gpu : on_cpu; }
  /// Returns the planned bytes on a device where no other job has mapped the same file.
  int64_t bytes_alone(DeviceKind kind) const {
    return on(kind).bytes + (kind == DeviceKind::kCpu ? asked.mapped.bytes : 0);
  }
  /// Returns the longest remaining run time by forecast or time limit; kUnlimited: unknown.
  int64_t upper_rest_us(DeviceKind kind) const {
    return on(kind).rest.known() ? on(kind).rest.high_us : rest_max_us;
  }
  /// Returns what the job needs of quotas; an auto job counts with its shorter forecast.
  QuotaNeed quota_need() const;
};

/// A job on its devices: it is STARTING or RUNNING, or it has ended but its process still exists.
struct PlacedJob {
  std::string uid;
  std::vector<std::string> devices;
  std::string name, owner = {};
  int32_t priority = 0;
  int64_t bytes = 0;            // see Need::bytes
  int32_t threads = 1;          // see DeviceRequest::threads
  MappedFileBrief mapped = {};  // only on the CPU
  bool exclusive = false;
  bool running = false;       // true: it trains; false: it starts, and its memory is not in use yet
  bool stopping = false;      // it was requested to stop: its devices become free within seconds
  int64_t start_time_us = 0;  // start of this attempt
  // Time of its start or newest checkpoint; a kill loses the work since then.
  int64_t saved_time_us = 0;
  Range end = {};                   // expected end
  int64_t end_max_us = kUnlimited;  // end according to its time limit
  std::string project = {};
};

enum class Preemption : uint8_t { kOff, kPriority };

struct Policy {
  bool draining = false;  // the server is stopping and starts no jobs
  Preemption preemption = Preemption::kOff;
  int64_t preempt_after_us = 600'000'000;  // a job is not preempted before it has run for this time
  int64_t half_life_us = 0;  // half-life of owners' usage; 0: no fair share between owners
  // The longest time for which a reserved device may stay idle if the reservation's start time is
  // unknown.
  int64_t reserved_idle_max_us = 600'000'000;
};

struct StartDecision {
  std::string uid;
  std::vector<std::string> devices;  // as many as the job requested
  std::string reason;                // DEVICE_ASSIGNED, CPU_FALLBACK
  std::string message;               // why this device
};
/// A running job that must go back to the queue, with a checkpoint.
struct PreemptDecision {
  std::string uid;
  std::string for_uid;   // the job for which it makes room
  std::string for_name;  // that job's name; empty if it is of another project
};
struct WaitReason {
  // WAITING_FOR_DEVICE, NO_DEVICE, RETRY_BACKOFF, SERVER_DRAINING, QUOTA_DEVICES,
  // QUOTA_DEVICE_HOURS
  std::string reason;
  std::string message;
};

class Queue;   // the waiting jobs (queue.h)
class Fleet;   // the devices and the jobs on them (fleet.h)
class Shares;  // the owners' usage of devices (shares.h)

/// The resources of a device that one more job needs.
struct Ask {
  int64_t bytes = 0;
  int32_t threads = 1;
  bool exclusive = false;
  MappedFileBrief mapped = {};  // needs no room next to a job that has mapped the same
  int64_t bytes_alone() const { return bytes + mapped.bytes; }
};
/// The resources of a device that are left next to the reserved job, from the reservation's start
/// on.
struct Spare {
  int32_t device = 0;  // Fleet::Index
  int64_t bytes = 0;   // room for the plan of one more job
  int32_t slots = 0;
  int32_t cores = 0, cores_all = 0;  // cores_all 0: cores are not counted
  bool taken = false;                // true: nothing is left, because the reserved job is exclusive
  bool holds(const Ask& ask) const {
    return !taken && !ask.exclusive && bytes >= ask.bytes_alone() && slots > 0 &&
           (cores_all == 0 || std::min(ask.threads, cores_all) <= cores);
  }
};
/// Jobs that a message mentions: those of the reader's project by name, the others by their number.
struct MentionedJobs {
  std::vector<std::string> names;
  size_t others = 0;
  size_t size() const { return names.size() + others; }
};
/// Devices that are reserved for the first job that finds no room on them.
struct Reservation {
  std::string uid, name, project, owner;  // identify the job
  int32_t priority = 0;
  int64_t order = 0;
  DeviceKind kind = DeviceKind::kCpu;
  Ask ask;
  int64_t wait_since_us = 0;  // WaitingJob::wait_since_us
  // Expected start by upper forecasts; kUnlimited: unknown. Then all devices of the kind on which
  // the job could ever fit are reserved, for a time that the policy limits.
  int64_t time_us = 0;
  // A job that starts before the reserved one must end by this time. It equals time_us unless an
  // overdue job delays the start. In that case it is the last expected end of the other jobs to
  // wait for, so that the overdue job does not move it later.
  int64_t before_us = 0;
  int64_t end_us = kUnlimited;  // expected end of the reserved job; kUnlimited: unknown
  std::vector<Spare> devices;   // empty if the start time is unknown
  MentionedJobs makes_room;     // the jobs that are preempted for it
};
/// Why a line of the queue waits.
struct Blocked {
  int64_t line = 0;
  enum class Why : uint8_t { kNoDevice, kTooLarge, kNoRoom, kReserved } why = Why::kNoDevice;
  DeviceKind kind = DeviceKind::kCpu;
  int32_t reservation = -1;  // index of its own reservation, or of the one that it waits for
  std::string note;          // for an auto job: the comparison of the kinds of device
};

/// Why jobs wait, according to one decision. The message is composed only on request, so a job that
/// continues to wait costs no write.
struct WaitReasons {
  bool draining = false;
  std::vector<Blocked> lines;  // lines whose reason is more specific than "no room"
  std::vector<Reservation> reservations;
  int64_t lines_seen = 0;  // Queue::last_line() at the decision
  Quotas quotas;           // with the jobs that the decision started
  /// Returns why the job waits. `fleet` must have the devices of the decision. Returns nothing if
  /// the job was not part of the decision. Also returns nothing for a job in a retry pause without
  /// a lost worker, because the reason with which it returned to the queue is more informative.
  std::optional<WaitReason> find(const Queue& queue, const Fleet& fleet, const Policy& policy,
                                 std::string_view uid, int64_t now_us) const;
  /// Replaces the reservations' times of the decision, which may be minutes old, by those of the
  /// projection that `queue` shows, so that messages and the queue give the same times.
  void take_projection(const Queue& queue, const Fleet& fleet, const Shares& shares,
                       int64_t now_us);
};

struct Decisions {
  std::vector<StartDecision> starts;      // in the order in which to start them
  std::vector<PreemptDecision> preempts;  // jobs to preempt that are not stopping yet
  WaitReasons waits;                      // reasons of all other waiting jobs
  std::optional<int64_t> wake_time_us;    // decide again at this time, even if nothing happens
  bool more = false;  // kStartsMax was reached: decide again once these are placed
};

/// Makes one scheduling pass. Leaves `fleet` unchanged when it returns. The result's `waits` has
/// the quotas after the pass.
Decisions decide(const Queue& queue, Fleet& fleet, const Shares& shares, const Policy& policy,
                 int64_t now_us, Quotas quotas = {});

/// Returns whether the job is in a retry pause. A pause that seems longer than the maximum is the
/// effect of a wall clock that jumped back, and counts as over.
bool in_retry_pause(const WaitingJob& job, int64_t now_us);

/// Returns the scheduler's view of a waiting job. Nothing if the job does not wait for devices,
/// because it is active, PAUSED or ended, waits for another job, or its cancellation was requested.
std::optional<WaitingJob> waiting_job(const JobBrief& job);

/// Returns the scheduler's view of a job on its devices; nothing if it occupies none.
std::optional<PlacedJob> placed_job(const JobBrief& job);
/// Limits each of the three times to `most_us`.
Range bounded(Range range, int64_t most_us);
/// Returns the range of end times of something that starts at `from_us` and takes this many
/// seconds; unknown if `likely_s` is 0.
Range end_of(double low_s, double likely_s, double high_s, int64_t from_us);

}  // namespace trainyard::server
