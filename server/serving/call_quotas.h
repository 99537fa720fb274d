// server/serving/call_quotas.h: the quotas of calls to models, each a token bucket in memory.
//
// A bucket holds as many calls as the quota allows in a minute, and refills evenly. A restart of
// the daemon begins with full buckets. There is one bucket for each quota, so their number is
// bounded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "server/store/quota_store.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Thread-safe. `quotas` and `clock` must outlive it.
class CallQuotas {
 public:
  CallQuotas(const QuotaStore& quotas, const Clock& clock) : quotas_(quotas), clock_(clock) {}

  /// Reads the quotas again. Called at the start and after each change of quotas. Buckets keep the
  /// calls that they have, up to the new limit.
  Status reload();

  /// Takes one call to a model of the project from all quotas that cover it, or from none. Error:
  /// RESOURCE_EXHAUSTED/QUOTA_EXCEEDED.
  Status take(const std::string& project, const std::string& person);

 private:
  struct Bucket {
    int64_t max = 0;
    double calls = 0;  // left at the time as_of_us
    int64_t as_of_us = 0;
  };
  /// Refills the bucket until now.
  void refill(Bucket& bucket, int64_t now_us) const;

  const QuotaStore& quotas_;
  const Clock& clock_;
  Mutex mu_;
  // By project and person, as QuotaScope.
  std::map<std::pair<std::string, std::string>, Bucket> buckets_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
