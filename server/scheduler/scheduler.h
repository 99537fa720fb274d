// server/scheduler/scheduler.h: who starts, where, who makes room, and why the others wait.
//
// decide() is pure: no clock, no threads, no I/O, so that the same code runs in the daemon, in
// tests and in a simulator. It goes by three indexes that are kept up to date change by change: the
// jobs that wait (queue.h), the devices with the jobs on them (fleet.h) and what each owner has
// used (shares.h).
//
// Order      Higher priority first; then the owner who has used less of late, where the policy has
//            a half-life; then in order of submission. A job that rests after a lost worker delays
//            nobody.
// Room       Jobs share a device as long as its memory, less what other processes hold, has each
//            one's planned bytes and the overhead of its process; on the CPU their threads are at
//            most its cores (a job of more threads than cores has it alone); and its slots are not
//            exceeded. An exclusive job shares with none. Idle devices are taken first, then those
//            on which the least stays free.
// Kind       cpu and gpu as asked. Several GPUs are of one model, at once or not at all. auto: the
//            kind on which the job is expected to end first, waiting included: for running jobs,
//            for the one that a free GPU is reserved for, and for those before it in the queue.
//            Without forecasts a GPU where one works, busy or not, else the CPU. After a first
//            attempt the same kind as before, while there is one, since another gives other bits.
// Backfill   The first job that finds no room on a kind of device (GPUs of one model are a kind)
//            has it reserved for the time at which, by the upper forecasts of those that run, it
//            fits. Others start there before it only if they end by then by their upper forecast,
//            or use what it will not need. The time that an overdue job is given is for nobody to
//            slip in, or those who do would be overdue next. A job without a forecast does not
//            slip in front, but for one with a time limit, which is an upper forecast too. Where
//            that time is unknown, each device is kept for the policy's time at most, counted from
//            when a job last left it; then it is lent to those that have an upper forecast, and
//            kept again once one of them leaves. So the first job starts, at the latest, when the
//            jobs of unknown end are gone and those lent to then have reached their upper
//            forecasts.
// Preemption By policy: such a job, if of strictly higher priority, has others put back into the
//            queue: those of the lowest priority, then those who lose the least work. None that
//            has not run for the policy's time since its start, none that ends soon anyway.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/job.h"
#include "src/base/result.h"
#include "src/planning/devices.h"

namespace trainyard::server {

/// The longest pause after a lost worker (retry.h respects it).
inline constexpr int64_t kRetryPauseMaxUs = 75'000'000;
/// More bytes, or later, than there is.
inline constexpr int64_t kUnlimited = int64_t{1} << 62;
/// decide() starts at most so many jobs at a time.
inline constexpr size_t kStartsMax = 256;

/// A time with its range, in microseconds: how long something takes, or when it happens. 0:
/// unknown.
struct Range {
  int64_t low_us = 0, likely_us = 0, high_us = 0;
  bool known() const { return high_us > 0; }
};

/// What a job asks for. Jobs that ask for the same wait for the same reason.
struct DeviceRequest {
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;                       // above 1 with kGpu
  std::optional<DeviceKind> kind_before;  // of the last attempt
  bool exclusive = false;                 // shares its devices with no other job
  int32_t threads = 1;                    // of its own on the CPU; on a GPU they are not counted
  auto operator<=>(const DeviceRequest&) const = default;
};

/// What a job takes of a device of one kind.
struct Need {
  int64_t bytes = 0;  // planned, of each device; without the overhead of its process
  Range rest;         // from its next start to its end
};

struct WaitingJob {
  std::string uid;
  std::string name;          // for people
  std::string owner;         // for fair share
  std::string cluster = {};  // that it asks for; empty: the server's own devices
  int64_t order = 0;         // of submission; unique
  int32_t priority = 0;
  DeviceRequest asked;
  Need on_cpu, on_gpu;
  int32_t workers_lost = 0;
  int64_t retry_time_us = 0;         // does not start before
  int64_t rest_max_us = kUnlimited;  // from its next start, by its time limit
  int64_t wait_since_us = 0;         // when it came into the queue, or came back
  const Need& on(DeviceKind kind) const { return kind == DeviceKind::kGpu ? on_gpu : on_cpu; }
  /// At most; kUnlimited: unknown.
  int64_t upper_rest_us(DeviceKind kind) const {
    return on(kind).rest.known() ? on(kind).rest.high_us : rest_max_us;
  }
};

/// A job on its devices: STARTING or RUNNING, or gone but for its process.
struct PlacedJob {
  std::string uid;
  std::vector<std::string> devices;
  std::string name, owner = {};
  int32_t priority = 0;
  int64_t bytes = 0;    // as Need::bytes
  int32_t threads = 1;  // as DeviceRequest
  bool exclusive = false;
  bool running = false;       // it trains; else it starts, and its memory is not yet in use
  bool stopping = false;      // asked to leave: its devices are free in some seconds
  int64_t start_time_us = 0;  // of this attempt
  int64_t saved_time_us = 0;  // what a kill loses began then: its start, or its newest checkpoint
  Range end = {};             // when it ends
  int64_t end_max_us = kUnlimited;  // by its time limit
};

enum class Preemption : uint8_t { kOff, kPriority };

struct Policy {
  bool draining = false;  // the server is stopping: nothing starts
  Preemption preemption = Preemption::kOff;
  int64_t preempt_after_us = 600'000'000;  // a job runs at least so long at a stretch
  int64_t half_life_us = 0;                // of an owner's usage; 0: owners do not matter
  // How long what a job has reserved for a start at an unknown time stands free for it at most.
  int64_t reserved_idle_max_us = 600'000'000;
};

struct StartDecision {
  std::string uid;
  std::vector<std::string> devices;  // as many as it asks for
  std::string reason;                // DEVICE_ASSIGNED, CPU_FALLBACK
  std::string message;               // why this device
};
/// A running job that must go back to the queue, with a checkpoint.
struct PreemptDecision {
  std::string uid;
  std::string for_uid, for_name;  // makes room for it
};
struct WaitReason {
  std::string reason;  // WAITING_FOR_DEVICE, NO_DEVICE, RETRY_BACKOFF, SERVER_DRAINING
  std::string message;
};

class Queue;   // the waiting jobs (queue.h)
class Fleet;   // the devices and the jobs on them (fleet.h)
class Shares;  // what owners have used (shares.h)

/// What one more job asks of a device.
struct Ask {
  int64_t bytes = 0;
  int32_t threads = 1;
  bool exclusive = false;
};
/// What a reservation leaves of a device from its time on.
struct Spare {
  int32_t device = 0;  // Fleet::Index
  int64_t bytes = 0;   // for the plan of one more job
  int32_t slots = 0;
  int32_t cores = 0, cores_all = 0;  // cores_all 0: they are not counted
  bool taken = false;                // nothing: it is for one job alone
  bool holds(const Ask& ask) const {
    return !taken && !ask.exclusive && bytes >= ask.bytes && slots > 0 &&
           (cores_all == 0 || std::min(ask.threads, cores_all) <= cores);
  }
};
/// Devices that are kept for the first job that finds no room on them.
struct Reservation {
  std::string uid, name, owner;  // of the job
  int32_t priority = 0;
  int64_t order = 0;
  DeviceKind kind = DeviceKind::kCpu;
  Ask ask;
  int64_t wait_since_us = 0;  // WaitingJob::wait_since_us
  int64_t time_us = 0;        // by upper forecasts; kUnlimited: unknown, and all of the kind
                              // on which it could ever fit are kept, as long as the policy says
  // Who starts in front of it ends by then: at that time, or, where that time rests on a job
  // that is overdue, with the last of the others that it waits for. It never moves later.
  int64_t before_us = 0;
  int64_t end_us = kUnlimited;          // when it would have ended; kUnlimited: unknown
  std::vector<Spare> devices;           // none where the time is unknown
  std::vector<std::string> makes_room;  // names of jobs that are put back into the queue for it
};
/// Why a line waits.
struct Blocked {
  int64_t line = 0;
  enum class Why : uint8_t { kNoDevice, kTooLarge, kNoRoom, kReserved } why = Why::kNoDevice;
  DeviceKind kind = DeviceKind::kCpu;
  int32_t reservation = -1;  // its own, or the one that it waits behind
  std::string note;          // of an auto job: what was weighed
};

/// Why jobs wait, as of one decision. Told when someone asks: nothing is written, nor put into
/// words, for those that go on waiting.
struct WaitReasons {
  bool draining = false;
  std::vector<Blocked> lines;  // of which there is more to say than that there is no room
  std::vector<Reservation> reservations;
  int64_t lines_seen = 0;  // Queue::last_line() then
  /// `fleet` with the devices that were decided on. Nothing if the job was not there to be decided
  /// on, and for one that rests although no worker was lost: the reason that it went (back) to the
  /// queue with says more.
  std::optional<WaitReason> find(const Queue& queue, const Fleet& fleet, const Policy& policy,
                                 std::string_view uid, int64_t now_us) const;
};

struct Decisions {
  std::vector<StartDecision> starts;      // in the order to start them
  std::vector<PreemptDecision> preempts;  // not yet stopping
  WaitReasons waits;                      // of every other waiting job
  std::optional<int64_t> wake_time_us;    // decide again at this time, even if nothing happens
  bool more = false;  // kStartsMax was reached: decide again once these are placed
};

/// The fleet is as before when it returns.
Decisions decide(const Queue& queue, Fleet& fleet, const Shares& shares, const Policy& policy,
                 int64_t now_us);

/// Whether the job pauses after a lost worker. A pause that seems longer than the maximum results
/// from a wall clock that jumped back, and is over.
bool is_resting(const WaitingJob& job, int64_t now_us);

/// What is decided on of a job; nothing if it does not wait: it is active, PAUSED or over, it waits
/// for another job, or its cancellation was requested.
std::optional<WaitingJob> waiting_job(const JobBrief& job);

/// The same of a job on its devices; nothing if it is on none.
std::optional<PlacedJob> placed_job(const JobBrief& job);
/// What is later than `most_us` becomes that.
Range bounded(Range range, int64_t most_us);
/// When something ends that from then on takes so many seconds; unknown if `likely_s` is 0.
Range end_of(double low_s, double likely_s, double high_s, int64_t from_us);

}  // namespace trainyard::server
