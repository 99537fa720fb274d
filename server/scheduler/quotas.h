// server/scheduler/quotas.h: the quotas of devices at one scheduling pass, and which waiting jobs
// they hold back.
//
// A value without a clock: the dispatcher reads the quotas and what is used of them from the store
// (server/store/quota_store.h) before the pass, and the pass charges each job that it starts.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "server/store/quota.h"

namespace trainyard::server {

struct WaitingJob;
struct WaitReason;

class Quotas {
 public:
  Quotas() = default;
  explicit Quotas(std::vector<DeviceQuota> quotas) : quotas_(std::move(quotas)) {}

  bool empty() const { return quotas_.empty(); }
  /// Returns a quota that does not allow the job to start now; null if all do. Of several it is one
  /// of kDevices, because that holds back all jobs that ask for as many devices.
  const DeviceQuota* find_exceeded(const WaitingJob& job) const;
  /// Adds a job that starts to the use of its quotas.
  void charge(const WaitingJob& job);
  /// Returns when `quota`, which holds the job back, has room for it by the ends that are known;
  /// kUnlimited if they are not enough.
  static int64_t frees_us(const DeviceQuota& quota, const WaitingJob& job);
  /// Returns why the job waits: QUOTA_DEVICES or QUOTA_DEVICE_HOURS. Nothing if no quota holds it
  /// back.
  std::optional<WaitReason> reason(const WaitingJob& job, int64_t now_us) const;

 private:
  std::vector<DeviceQuota> quotas_;
};

}  // namespace trainyard::server
