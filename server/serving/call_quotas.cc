#include "server/serving/call_quotas.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace trainyard::server {
namespace {

constexpr double kMinuteUs = 60e6;

Error calls_exceeded(const QuotaScope& scope, int64_t max, int64_t wait_s) {
  const std::string name(name_of(QuotaKind::kModelCalls));
  Error e = make_error(
      ErrorCode::kResourceExhausted, "QUOTA_EXCEEDED",
      "the quota " + name + " of " + scope.text() + " is " +
          amount_text(QuotaKind::kModelCalls, max) +
          (max > 0 ? ", which are used; the next is possible in " + std::to_string(wait_s) + " s."
                   : "."));
  e.metadata["quota"] = name;
  e.metadata["scope"] = scope.text();
  e.metadata["limit"] = std::to_string(max);
  e.metadata["used"] = std::to_string(max);
  return e;
}

}  // namespace

void CallQuotas::refill(Bucket& bucket, int64_t now_us) const {
  const auto max = static_cast<double>(bucket.max);
  const auto passed_us = static_cast<double>(std::max<int64_t>(0, now_us - bucket.as_of_us));
  bucket.calls = std::min(max, bucket.calls + max * passed_us / kMinuteUs);
  bucket.as_of_us = now_us;
}

Status CallQuotas::reload() {
  ASSIGN_OR_RETURN(const std::vector<Quota> all, quotas_.list());
  const int64_t now_us = clock_.steady_us();
  const MutexLock lock(mu_);
  std::map<std::pair<std::string, std::string>, Bucket> buckets;
  for (const Quota& quota : all) {
    if (quota.kind != QuotaKind::kModelCalls) continue;
    const std::pair key{quota.scope.project, quota.scope.person};
    Bucket bucket{quota.max, static_cast<double>(quota.max), now_us};
    if (const auto before = buckets_.find(key); before != buckets_.end()) {
      refill(before->second, now_us);
      bucket.calls = std::min(bucket.calls, before->second.calls);
    }
    buckets.emplace(key, bucket);
  }
  buckets_.swap(buckets);
  return {};
}

Status CallQuotas::take(const std::string& project, const std::string& person) {
  const MutexLock lock(mu_);
  if (buckets_.empty()) return {};
  const int64_t now_us = clock_.steady_us();
  std::vector<Bucket*> covering;
  const std::array<std::pair<std::string, std::string>, 3> keys{
      {{project, ""}, {"", person}, {project, person}}};
  for (const auto& key : keys) {
    const auto found = buckets_.find(key);
    if (found == buckets_.end()) continue;
    Bucket& bucket = found->second;
    refill(bucket, now_us);
    if (bucket.calls < 1) {
      const double wait_us = (1 - bucket.calls) * kMinuteUs / static_cast<double>(bucket.max);
      const int64_t wait_s = bucket.max == 0 ? 0 : static_cast<int64_t>(std::ceil(wait_us / 1e6));
      return calls_exceeded({key.first, key.second}, bucket.max, wait_s);
    }
    covering.push_back(&bucket);
  }
  for (Bucket* const bucket : covering) bucket->calls -= 1;
  return {};
}

}  // namespace trainyard::server
