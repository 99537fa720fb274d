// server/store/quota_store.h: quotas and the books of device use. Thread-safe; see
// server/store/store.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "server/store/quota.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

class QuotaStore {
 public:
  explicit QuotaStore(StoreCore& core);

  /// Sets or replaces a quota. Error: RESOURCE_EXHAUSTED/QUOTAS_TOO_MANY beyond kQuotasMax.
  Status set(const Quota& quota);
  /// Removes the quota of this kind and scope. Error: NOT_FOUND/QUOTA_NOT_FOUND.
  Status remove(QuotaKind kind, const QuotaScope& scope);
  /// Returns all quotas, by kind, project and person.
  Result<std::vector<Quota>> list() const;
  struct Page {
    std::vector<QuotaUse> quotas;
    std::string next_page_token;
  };
  /// Returns a page of the quotas that are `visible`, with what is used of them now. Errors:
  /// PAGE_SIZE_NEGATIVE, PAGE_TOKEN_INVALID.
  Result<Page> list_page(const std::function<bool(const Quota&)>& visible, int32_t page_size,
                         const std::string& page_token, int64_t now_us) const;

  /// Returns the quotas that the scheduler enforces, with what is used of them. Costs nothing if
  /// there are none.
  Result<std::vector<DeviceQuota>> device_quotas(int64_t now_us) const;

  /// Adds the measured energy of an attempt that has ended. Does nothing if its job has been
  /// deleted or another job used its devices at the same time.
  void add_energy(std::string job_uid, int32_t attempt, double joules, Done<void> done);
  /// Returns the use of devices on the days from `first_day` until before `end_day`.
  Result<std::vector<DeviceUse>> device_uses(int64_t first_day, int64_t end_day,
                                             int64_t now_us) const;

 private:
  void note_device_quotas();

  StoreCore& core_;
  std::atomic<bool> has_device_quotas_{false};
};

}  // namespace trainyard::server
