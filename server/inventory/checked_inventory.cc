#include "server/inventory/checked_inventory.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "server/config/log.h"
#include "src/base/check.h"
#include "src/base/mutex.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {
namespace {

enum class Trust : uint8_t { kUnknown, kChecking, kTrusted, kFailed, kBusy, kHost };

/// Returns the verdict that the error of a check leads to.
Trust trust_after(const Error& error) {
  if (error.reason == kDeviceBusy) return Trust::kBusy;
  return error.reason == kHostFault ? Trust::kHost : Trust::kFailed;
}

struct Verdict {
  Trust trust = Trust::kUnknown;
  std::string failure, warning;
  int64_t time_us = 0;  // steady-clock time of the newest result
  int64_t overhead_bytes = 0;
  int64_t faults_reported = 0;
  bool doubted = false;  // doubt() was called since the newest result
};

}  // namespace

struct CheckedInventory::Impl : std::enable_shared_from_this<Impl> {
  Impl(std::unique_ptr<Inventory> i, const Clock& c) : inner(std::move(i)), clock(c) {}

  /// Applies the check's result to a device that could run jobs. True if a check must start.
  bool apply(Device& device) TRAINYARD_REQUIRES(mu) {
    Verdict& v = verdicts[device.uuid];
    device.overhead_bytes = std::max(v.overhead_bytes, overhead_least_bytes(device));
    if (device.faults_reported != v.faults_reported && v.trust == Trust::kTrusted) {
      v.trust = Trust::kUnknown;
    }
    v.faults_reported = device.faults_reported;
    if (v.trust == Trust::kTrusted) {
      if (!v.warning.empty()) {
        device.health = DeviceHealth::kDegraded;
        device.reason = v.warning;
      }
      return false;
    }
    // The earlier daemon, which started the device's jobs, had checked it. A check now would find
    // these jobs on it.
    if (v.trust == Trust::kUnknown && !v.doubted && inherited.contains(device.name)) return false;
    const int64_t rested_us = clock.steady_us() - v.time_us;
    const bool again = (v.trust == Trust::kFailed && rested_us >= kRetryUs) ||
                       (v.trust == Trust::kBusy && rested_us >= kBusyRetryUs) ||
                       (v.trust == Trust::kHost && rested_us >= kHostRetryUs);
    const bool begins = check && (v.trust == Trust::kUnknown || again);
    if (begins) v.trust = Trust::kChecking;
    device.schedulable = false;
    if (v.trust == Trust::kFailed) {
      device.health = DeviceHealth::kQuarantined;
      device.reason = "It failed its check: " + v.failure + ".";
    } else if (v.trust == Trust::kBusy) {
      device.busy = true;
      device.reason = v.failure + ".";
    } else if (v.trust == Trust::kHost) {
      device.health = DeviceHealth::kUnknown;  // no check of the GPU is possible
      device.reason = "A problem of this host, not of the GPU: " + v.failure + ".";
    } else {
      device.checking = true;
      device.reason = "It is being checked before a job starts on it.";
    }
    return begins;
  }

  void finish(const std::string& name, const std::string& uuid, const Result<CheckPassed>& result) {
    const bool is_host_fault = !result.ok() && result.error().reason == kHostFault;
    bool is_new = false;
    std::function<void()> notify;
    {
      const MutexLock lock(mu);
      if (!check) return;  // stopped
      Verdict& v = verdicts[uuid];
      TRAINYARD_CHECK(v.trust == Trust::kChecking, uuid + " is checked although no check began");
      v.trust = result.ok() ? Trust::kTrusted : trust_after(result.error());
      is_new = is_host_fault && v.failure != result.error().message;
      v.failure = result.ok() ? "" : result.error().message;
      if (result.ok()) {
        // Only the first result sets the overhead. At a later check other jobs may be on the
        // device, and the memory that they allocate meanwhile would be included.
        const int64_t bytes = result->overhead_bytes;
        if (v.overhead_bytes == 0 && bytes <= kOverheadMostBytes) v.overhead_bytes = bytes;
        v.warning = result->warning;
      }
      v.time_us = clock.steady_us();
      v.doubted = false;
      notify = changed;
    }
    if (is_new) {
      spdlog::warn("event=gpu_host_fault {} {}", kv("device", name),
                   kv("message", result.error().message));
    }
    notify();
  }

  const std::unique_ptr<Inventory> inner;
  const Clock& clock;
  Mutex mu;
  Check check TRAINYARD_GUARDED_BY(mu);  // empty: not started, or stopped
  std::function<void()> changed TRAINYARD_GUARDED_BY(mu);
  std::map<std::string, Verdict> verdicts
      TRAINYARD_GUARDED_BY(mu);  // by UUID, which survives a renumbering
  std::map<std::string, std::string> uuids
      TRAINYARD_GUARDED_BY(mu);  // by device name, as last read
  // Number of inherited jobs by device name.
  std::map<std::string, int> inherited TRAINYARD_GUARDED_BY(mu);
};

int64_t CheckedInventory::overhead_least_bytes(const Device& device) {
  if (device.memory_bytes == 0) return kOverheadLeastBytes;  // unknown
  return std::min(device.memory_bytes / 4, kOverheadLeastBytes);
}

CheckedInventory::CheckedInventory(std::unique_ptr<Inventory> inner, const Clock& clock)
    : impl_(std::make_shared<Impl>(std::move(inner), clock)) {}
CheckedInventory::~CheckedInventory() { stop(); }

void CheckedInventory::start(Check check, std::function<void()> changed) {
  {
    const MutexLock lock(impl_->mu);
    impl_->check = std::move(check);
    impl_->changed = std::move(changed);
  }
  (void)read();  // starts the checks
}

void CheckedInventory::stop() {
  const MutexLock lock(impl_->mu);
  impl_->check = nullptr;
}

Devices CheckedInventory::read() {
  Devices devices = impl_->inner->read();
  std::vector<Device> begin;
  Check check;
  {
    const MutexLock lock(impl_->mu);
    bool any_usable = false;
    std::string why;
    for (Device& d : devices.devices) {
      if (d.kind != DeviceKind::kGpu) continue;
      impl_->uuids[d.name] = d.uuid;
      if (d.schedulable && impl_->apply(d)) begin.push_back(d);
      any_usable |= d.schedulable;
      if (why.empty() && !d.schedulable) why = d.name + ": " + d.reason;
    }
    if (!any_usable && !why.empty() && devices.note.empty()) {
      devices.note = "No usable GPU now: " + why;
    }
    check = impl_->check;
  }
  for (const Device& device : begin) {
    check(device, [impl = impl_, name = device.name, uuid = device.uuid](
                      const Result<CheckPassed>& result) { impl->finish(name, uuid, result); });
  }
  return devices;
}

void CheckedInventory::doubt(const std::string& device) {
  const MutexLock lock(impl_->mu);
  const auto it = impl_->uuids.find(device);
  if (it == impl_->uuids.end()) return;
  Verdict& v = impl_->verdicts[it->second];
  v.doubted = true;
  if (v.trust == Trust::kTrusted) v.trust = Trust::kUnknown;
}

void CheckedInventory::set_inherited(const std::string& device, bool inherited) {
  const MutexLock lock(impl_->mu);
  if (inherited) {
    ++impl_->inherited[device];
    return;
  }
  const auto it = impl_->inherited.find(device);
  TRAINYARD_CHECK(it != impl_->inherited.end(), device + " loses more inherited jobs than it had");
  if (--it->second == 0) impl_->inherited.erase(it);
}

}  // namespace trainyard::server
