#include "server/scheduler/quotas.h"

#include <algorithm>

namespace trainyard::server {
namespace {

/// A job of unknown length needs no more than is left, but something must be left.
bool is_exceeded(const DeviceQuota& quota, const QuotaNeed& need) {
  return quota.used + need.of(quota.kind) > quota.max || quota.used >= quota.max;
}

}  // namespace

const DeviceQuota* Quotas::find_exceeded(const QuotaNeed& need) const {
  const DeviceQuota* found = nullptr;
  for (const DeviceQuota& quota : quotas_) {
    if (!quota.scope.covers(need.project, need.person) || !is_exceeded(quota, need)) continue;
    if (quota.kind == QuotaKind::kDevices) return &quota;
    if (found == nullptr) found = &quota;
  }
  return found;
}

void Quotas::charge(const QuotaNeed& need) {
  for (DeviceQuota& quota : quotas_) {
    if (quota.scope.covers(need.project, need.person)) quota.used += need.of(quota.kind);
  }
}

std::optional<int64_t> Quotas::frees_us(const DeviceQuota& quota, const QuotaNeed& need) {
  const int64_t least = std::max<int64_t>(1, need.of(quota.kind));
  if (least > quota.max) return std::nullopt;
  int64_t excess = quota.used + least - quota.max;
  for (const DeviceQuota::End& end : quota.ends) {
    excess -= end.amount;
    if (excess <= 0) return end.time_us;
  }
  return std::nullopt;
}

}  // namespace trainyard::server
