// server/scheduler/quotas.h: the quotas of devices at one scheduling pass, and which waiting jobs
// they hold back.
//
// A value without a clock: the dispatcher reads the quotas and what is used of them from the store
// (server/store/quota_store.h) before the pass, and the pass charges each job that it starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "server/store/quota.h"

namespace trainyard::server {

/// What a waiting job needs of quotas. The names must outlive it.
struct QuotaNeed {
  std::string_view project;
  std::string_view person;
  int64_t devices = 1;
  int64_t device_us = 0;  // likely time times devices; 0: unknown
  int64_t of(QuotaKind kind) const { return kind == QuotaKind::kDevices ? devices : device_us; }
};

class Quotas {
 public:
  Quotas() = default;
  explicit Quotas(std::vector<DeviceQuota> quotas) : quotas_(std::move(quotas)) {}

  bool empty() const { return quotas_.empty(); }
  /// Returns a quota that does not allow the job to start now; null if all do. Of several it is one
  /// of kDevices, because that holds back all jobs that ask for as many devices.
  const DeviceQuota* find_exceeded(const QuotaNeed& need) const;
  /// Adds a job that starts to the use of its quotas.
  void charge(const QuotaNeed& need);
  /// Returns when `quota`, which holds the job back, has room for it by the ends that are known;
  /// nothing if they are not enough.
  static std::optional<int64_t> frees_us(const DeviceQuota& quota, const QuotaNeed& need);

 private:
  std::vector<DeviceQuota> quotas_;
};

}  // namespace trainyard::server
