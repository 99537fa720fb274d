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

#include <cstdint>
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

struct WaitingJob {
  std::string uid;
  int64_t order = 0;  // of submission; unique
  int32_t priority = 0;
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;                       // above 1 with kGpu
  std::optional<DeviceKind> kind_before;  // of the last attempt
  int32_t workers_lost = 0;
  int64_t retry_time_us = 0;  // does not start before
};
struct PlacedJob {
  std::string uid;
  std::vector<std::string> devices;
};
struct Snapshot {
  Devices inventory;
  std::vector<WaitingJob> waiting;  // in any order
  std::vector<PlacedJob> placed;    // STARTING and RUNNING: each holds a slot of each device
  bool draining = false;            // the server is stopping: nothing starts
};

struct StartDecision {
  std::string uid;
  std::vector<std::string> devices;  // as many as it asks for
  std::string reason;                // DEVICE_ASSIGNED, CPU_FALLBACK
  std::string message;               // why this device
};
struct WaitDecision {
  std::string uid;
  std::string reason;   // WAITING_FOR_DEVICE, NO_DEVICE, RETRY_BACKOFF, SERVER_DRAINING
  std::string message;  // changes only when the cause does, so that few rows are written
};
struct Decisions {
  std::vector<StartDecision> starts;    // in the order to start them
  std::vector<WaitDecision> waits;      // every other waiting job
  std::optional<int64_t> wake_time_us;  // decide again at this time, even if nothing happens
};

Decisions decide(const Snapshot& snapshot, int64_t now_us);

/// The snapshot of the store's unfinished jobs (JobStore::list_unfinished) on these devices. Jobs
/// that are PAUSED or whose cancellation was requested are not in `waiting`.
Snapshot make_snapshot(const std::vector<Job>& unfinished, Devices devices, bool draining);

/// A job's requested resources.
DeviceWish wish_of(const v1::JobSpec& spec);
int32_t gpus_of(const v1::JobSpec& spec);

/// Whether devices of this server could ever run it. INVALID_ARGUMENT/RESOURCES_IMPOSSIBLE.
Status check_satisfiable(DeviceWish wish, int32_t gpus, const Devices& devices);

}  // namespace trainyard::server
