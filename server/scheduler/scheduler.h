// server/scheduler/scheduler.h: who starts, where, and why the others wait.
//
// decide() is pure: no clock, no threads, no I/O, so that the same code runs in the daemon, in
// tests and in a simulator. Jobs are considered by priority, then in order of submission; each
// takes the first free slot among the devices it may use. A job that waits for one kind of device
// does not delay those that need the other; among jobs that need the same kind, none overtakes.
//
// Which devices a job may use:
//   cpu    the CPU.
//   gpu    a GPU; several of one model, where the job asks for so many. It gets all of them at once
//          or none: while it waits, the GPUs that it could use are kept from the jobs behind it.
//   auto   a GPU where the server has one that works, even if it is busy now (the CPU would finish
//          later) or being checked, else the CPU, with the reason. After a first attempt: the same
//          kind of device as before while there is one, since another kind gives other bits.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/inventory/inventory.h"
#include "server/store/job.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The longest pause after a lost worker (retry.h respects it).
inline constexpr int64_t kRetryPauseMaxUs = 75'000'000;

enum class DeviceWish : uint8_t { kAuto = 1, kCpu = 2, kGpu = 3 };  // as on the wire

/// What a job asks for. Jobs that ask for the same wait for the same reason.
struct DeviceRequest {
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;                       // above 1 with kGpu
  std::optional<DeviceKind> kind_before;  // of the last attempt
  auto operator<=>(const DeviceRequest&) const = default;
};

struct WaitingJob {
  std::string uid;
  int64_t order = 0;  // of submission; unique
  int32_t priority = 0;
  DeviceRequest asked;
  int32_t workers_lost = 0;
  int64_t retry_time_us = 0;  // does not start before
};
struct PlacedJob {
  std::string uid;
  std::vector<std::string> devices;
};
struct Snapshot {
  Devices inventory;
  std::vector<PlacedJob> placed;  // STARTING and RUNNING: each holds a slot of each device
  bool draining = false;          // the server is stopping: nothing starts
};

struct StartDecision {
  std::string uid;
  std::vector<std::string> devices;  // as many as it asks for
  std::string reason;                // DEVICE_ASSIGNED, CPU_FALLBACK
  std::string message;               // why this device
};
struct WaitReason {
  std::string reason;   // WAITING_FOR_DEVICE, NO_DEVICE, RETRY_BACKOFF, SERVER_DRAINING
  std::string message;  // changes only when the cause does
};
/// Why jobs wait, as of one decision: told when someone asks, so that nothing is written for those
/// that go on waiting.
struct WaitReasons {
  bool draining = false;
  std::map<DeviceRequest, WaitReason> by_request;
  /// Nothing if the job was not there to be decided on, and for one that rests although no worker
  /// was lost: the reason that it went (back) to the queue with says more.
  std::optional<WaitReason> find(const WaitingJob& job, int64_t now_us) const;
};
struct Decisions {
  std::vector<StartDecision> starts;    // in the order to start them
  WaitReasons waits;                    // of every other waiting job
  std::optional<int64_t> wake_time_us;  // decide again at this time, even if nothing happens
};

class Queue;  // the waiting jobs (server/scheduler/queue.h)
Decisions decide(const Queue& queue, const Snapshot& snapshot, int64_t now_us);

/// Whether the job pauses after a lost worker. A pause that seems longer than the maximum results
/// from a wall clock that jumped back, and is over.
bool is_resting(const WaitingJob& job, int64_t now_us);

/// What is decided on of a job; nothing if it does not wait: it is active, PAUSED or over, it waits
/// for another job, or its cancellation was requested.
std::optional<WaitingJob> waiting_job(const JobBrief& job);

/// A job's requested resources.
DeviceWish wish_of(const v1::Resources& resources);
int32_t gpus_of(const v1::Resources& resources);

/// Whether devices of this server could ever run it. INVALID_ARGUMENT/RESOURCES_IMPOSSIBLE.
Status check_satisfiable(DeviceWish wish, int32_t gpus, const Devices& devices);

}  // namespace trainyard::server
