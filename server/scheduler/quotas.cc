#include "server/scheduler/quotas.h"

#include <algorithm>
#include <ctime>
#include <string>

#include "server/scheduler/reasons.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {
namespace {

/// Returns the likely device time of the job by forecast or time limit; 0 if it is unknown. An auto
/// job counts with its shorter forecast.
int64_t device_us_of(const WaitingJob& job) {
  int64_t most_us = kUnlimited;
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kGpu}) {
    const DeviceWish other = kind == DeviceKind::kCpu ? DeviceWish::kGpu : DeviceWish::kCpu;
    if (job.asked.wish == other || !job.on(kind).rest.known()) continue;
    most_us = std::min(most_us, job.on(kind).rest.likely_us);
  }
  most_us = std::min(most_us, job.rest_max_us);
  return most_us == kUnlimited ? 0 : most_us * job.device_count;
}

int64_t need_of(const DeviceQuota& quota, const WaitingJob& job) {
  return quota.kind == QuotaKind::kDevices ? job.device_count : device_us_of(job);
}

/// A job of unknown length needs no more than is left, but something must be left.
bool is_exceeded(const DeviceQuota& quota, const WaitingJob& job) {
  return quota.used + need_of(quota, job) > quota.max || quota.used >= quota.max;
}

std::string utc_text(int64_t time_us) {
  const std::time_t seconds = time_us / 1'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts)};
}

}  // namespace

const DeviceQuota* Quotas::find_exceeded(const WaitingJob& job) const {
  const DeviceQuota* found = nullptr;
  for (const DeviceQuota& quota : quotas_) {
    if (!quota.scope.covers(job.project, job.owner) || !is_exceeded(quota, job)) continue;
    if (quota.kind == QuotaKind::kDevices) return &quota;
    if (found == nullptr) found = &quota;
  }
  return found;
}

void Quotas::charge(const WaitingJob& job) {
  for (DeviceQuota& quota : quotas_) {
    if (quota.scope.covers(job.project, job.owner)) quota.used += need_of(quota, job);
  }
}

int64_t Quotas::frees_us(const DeviceQuota& quota, const WaitingJob& job) {
  int64_t excess = std::max(quota.used + need_of(quota, job) - quota.max,
                            quota.used >= quota.max ? int64_t{1} : int64_t{0});
  if (need_of(quota, job) > quota.max) return kUnlimited;
  for (const DeviceQuota::End& end : quota.ends) {
    excess -= end.amount;
    if (excess <= 0) return end.time_us;
  }
  return kUnlimited;
}

std::optional<WaitReason> Quotas::reason(const WaitingJob& job, int64_t now_us) const {
  const DeviceQuota* const quota = find_exceeded(job);
  if (quota == nullptr) return std::nullopt;
  const int64_t need = need_of(*quota, job);
  const int64_t frees = frees_us(*quota, job);
  const std::string limit = amount_text(quota->kind, quota->max);
  const std::string used = amount_text(quota->kind, quota->used);
  if (quota->kind == QuotaKind::kDevices) {
    std::string message = "Waits for the quota devices of " + quota->scope.text() + ", which is " +
                          limit + " at once: " + used + (quota->used == 1 ? " is" : " are") +
                          " in use, and the job needs " + std::to_string(need) + ".";
    if (need > quota->max) {
      message += " It cannot start unless the quota is raised.";
    } else if (frees != kUnlimited) {
      message += " By forecast enough are free in " + about(frees - now_us) + ".";
    }
    return WaitReason{"QUOTA_DEVICES", message};
  }
  std::string message = "Waits for the quota device_hours of " + quota->scope.text() +
                        ", which is " + limit + " in " + std::to_string(kQuotaDays) +
                        " days: " + used + " are used or reserved";
  message += need > 0 ? ", and the job needs about " + amount_text(quota->kind, need) + "." : ".";
  if (frees != kUnlimited) {
    message += " Enough of them are older than that at " + utc_text(frees) + ".";
  } else {
    message += " It cannot start unless the quota is raised.";
  }
  return WaitReason{"QUOTA_DEVICE_HOURS", message};
}

}  // namespace trainyard::server
