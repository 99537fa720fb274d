// server/store/quota_rows.h: the rows of quotas, and the checks of the transactions that store
// jobs, datasets, models and uploads, so that concurrent calls cannot exceed a quota together. All
// functions throw SqliteError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/quota.h"
#include "server/store/sqlite.h"
#include "server/store/usage_books.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Returns all quotas, by kind, project and person.
std::vector<Quota> read_quotas(Connection& db);
/// Returns the quotas of this kind that cover the person in the project.
std::vector<Quota> find_quotas(Connection& db, QuotaKind kind, std::string_view project,
                               std::string_view person);

/// Returns the quotas of kDevices and kDeviceHours with what is used of them.
std::vector<DeviceQuota> read_device_quotas(Connection& db, int64_t now_us);
/// Returns how much of the quota is used: device time in microseconds for kDeviceHours, 0 for
/// kModelCalls.
int64_t used_of(Connection& db, const Quota& quota, int64_t now_us);

/// Returns RESOURCE_EXHAUSTED/QUOTA_EXCEEDED for a request that needs `more` of the quota. `frees`
/// says what makes room, as a clause.
Error quota_error(const Quota& quota, int64_t used, int64_t more, const std::string& frees);

/// Checks the quotas that apply to `count` new jobs, each of which needs at most `needs`. Jobs that
/// would wait for their quota are accepted unless they alone exceed it. Error:
/// RESOURCE_EXHAUSTED/QUOTA_EXCEEDED.
Status check_submit_quotas(Connection& db, std::string_view project, std::string_view person,
                           int64_t count, const JobNeeds& needs);
/// Checks the quotas of stored bytes for `more_bytes` more. Error:
/// RESOURCE_EXHAUSTED/QUOTA_EXCEEDED.
Status check_stored_bytes(Connection& db, std::string_view project, std::string_view person,
                          int64_t more_bytes);

}  // namespace trainyard::server
