#include "server/store/quota_rows.h"

#include <array>
#include <cstdio>
#include <utility>

namespace trainyard::server {
namespace {

constexpr std::array<std::string_view, 5> kNames{"queued_jobs", "devices", "device_hours",
                                                 "stored_bytes", "model_calls"};

Quota read_quota(const Query& row) {
  return {static_cast<QuotaKind>(row.integer(0)), {row.text(1), row.text(2)}, row.integer(3)};
}

int64_t number_of(Query& query, const QuotaScope& scope) {
  query.bind(scope.project).bind(scope.person);
  return query.step() ? query.integer(0) : 0;
}

int64_t queued_jobs(Connection& db, const QuotaScope& scope) {
  if (scope.person.empty()) {
    Query query(db,
                "SELECT count(*) FROM jobs INDEXED BY jobs_by_state"
                " WHERE state IN (1, 4) AND project = ?1 AND ?2 = ''");
    return number_of(query, scope);
  }
  Query query(db,
              "SELECT count(*) FROM jobs INDEXED BY jobs_by_owner"
              " WHERE owner = ?2 AND state IN (1, 4) AND (?1 = '' OR project = ?1)");
  return number_of(query, scope);
}

/// Versions of a dataset with the same digest share their files. A model of uploaded weights only
/// has the upload as its file.
int64_t stored_bytes(Connection& db, const QuotaScope& scope) {
  int64_t bytes = 0;
  {
    Query datasets(db,
                   "SELECT sum(bytes) FROM (SELECT max(size_bytes) AS bytes FROM datasets"
                   " WHERE (?1 = '' OR project = ?1) AND (?2 = '' OR owner = ?2)"
                   " GROUP BY project, digest)");
    bytes += number_of(datasets, scope);
  }
  {
    Query models(db,
                 "SELECT sum(size_bytes) FROM models"
                 " WHERE (?1 = '' OR project = ?1) AND (?2 = '' OR owner = ?2)");
    bytes += number_of(models, scope);
  }
  if (!scope.person.empty()) return bytes;
  // An upload that is still incomplete counts with its declared size.
  Query uploads(db,
                "SELECT sum(size_bytes) FROM uploads WHERE project = ?1 AND ?2 = ''"
                " AND sha256 NOT IN"
                "  (SELECT digest FROM models WHERE project = ?1 AND job_uid = '')");
  return bytes + number_of(uploads, scope);
}

std::string number_text(int64_t number, const char* one) {
  return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
}

}  // namespace

std::string_view name_of(QuotaKind kind) { return kNames[static_cast<size_t>(kind) - 1]; }

std::string amount_text(QuotaKind kind, int64_t amount) {
  switch (kind) {
    case QuotaKind::kQueuedJobs:
      return number_text(amount, "queued job");
    case QuotaKind::kDevices:
      return number_text(amount, "device");
    case QuotaKind::kDeviceHours: {
      char text[48];
      std::snprintf(text, sizeof text, "%.2f",
                    static_cast<double>(amount) / static_cast<double>(kQuotaHourUs));
      std::string hours = text;
      hours.erase(hours.find_last_not_of('0') + 1);
      if (hours.ends_with('.')) hours.pop_back();
      return hours + (hours == "1" ? " device-hour" : " device-hours");
    }
    case QuotaKind::kStoredBytes:
      return number_text(amount, "byte");
    case QuotaKind::kModelCalls:
      return number_text(amount, "call") + " to models in a minute";
  }
  return std::to_string(amount);
}

std::string QuotaScope::text() const {
  if (project.empty()) return person;
  return (person.empty() ? "" : person + " in ") + "projects/" + project;
}

std::vector<Quota> read_quotas(Connection& db) {
  std::vector<Quota> quotas;
  Query query(db, "SELECT kind, project, person, max FROM quotas ORDER BY kind, project, person");
  while (query.step()) quotas.push_back(read_quota(query));
  return quotas;
}

std::vector<Quota> find_quotas(Connection& db, QuotaKind kind, std::string_view project,
                               std::string_view person) {
  std::vector<Quota> quotas;
  Query query(db,
              "SELECT kind, project, person, max FROM quotas"
              " WHERE kind = ? AND project IN ('', ?) AND person IN ('', ?)");
  query.bind(static_cast<int64_t>(kind)).bind(project).bind(person);
  while (query.step()) quotas.push_back(read_quota(query));
  return quotas;
}

std::vector<DeviceQuota> read_device_quotas(Connection& db, int64_t now_us) {
  std::vector<DeviceQuota> quotas;
  for (const Quota& quota : read_quotas(db)) {
    if (quota.kind == QuotaKind::kDevices || quota.kind == QuotaKind::kDeviceHours) {
      quotas.push_back(device_quota_of(db, quota, now_us));
    }
  }
  return quotas;
}

int64_t used_of(Connection& db, const Quota& quota, int64_t now_us) {
  switch (quota.kind) {
    case QuotaKind::kQueuedJobs:
      return queued_jobs(db, quota.scope);
    case QuotaKind::kStoredBytes:
      return stored_bytes(db, quota.scope);
    case QuotaKind::kDevices:
    case QuotaKind::kDeviceHours:
      return device_quota_of(db, quota, now_us).used;
    case QuotaKind::kModelCalls:
      break;
  }
  return 0;
}

Error quota_error(const Quota& quota, int64_t used, int64_t more, const std::string& frees) {
  const int64_t unit = quota.kind == QuotaKind::kDeviceHours ? kQuotaHourUs : 1;
  const std::string name(name_of(quota.kind));
  std::string message = "the quota " + name + " of " + quota.scope.text() + " is " +
                        amount_text(quota.kind, quota.max * unit) + "; " +
                        amount_text(quota.kind, used) + (used == unit ? " is" : " are") + " used";
  if (more > 0) message += ", and this needs " + amount_text(quota.kind, more) + " more";
  Error e =
      make_error(ErrorCode::kResourceExhausted, "QUOTA_EXCEEDED", message + "; " + frees + ".");
  e.metadata["quota"] = name;
  e.metadata["scope"] = quota.scope.text();
  e.metadata["limit"] = std::to_string(quota.max);
  e.metadata["used"] = std::to_string(used / unit);
  return e;
}

Status check_submit_quotas(Connection& db, std::string_view project, std::string_view person,
                           int64_t count, const JobNeeds& needs) {
  for (const Quota& quota : find_quotas(db, QuotaKind::kQueuedJobs, project, person)) {
    const int64_t used = queued_jobs(db, quota.scope);
    if (used + count > quota.max) {
      return quota_error(quota, used, count, "room comes when jobs start, end or are cancelled");
    }
  }
  for (const Quota& quota : find_quotas(db, QuotaKind::kDevices, project, person)) {
    if (needs.devices > quota.max) {
      return quota_error(quota, 0, needs.devices,
                         "a job that needs more devices than that would never start");
    }
  }
  for (const Quota& quota : find_quotas(db, QuotaKind::kDeviceHours, project, person)) {
    if (needs.device_us > quota.max * kQuotaHourUs) {
      return quota_error(quota, 0, needs.device_us,
                         "a job whose forecast or time limit exceeds the quota of 30 days would "
                         "never start; make it shorter");
    }
  }
  return check_stored_bytes(db, project, person, 0);
}

Status check_stored_bytes(Connection& db, std::string_view project, std::string_view person,
                          int64_t more_bytes) {
  for (const Quota& quota : find_quotas(db, QuotaKind::kStoredBytes, project, person)) {
    const int64_t used = stored_bytes(db, quota.scope);
    if (used + more_bytes > quota.max) {
      return quota_error(quota, used, more_bytes,
                         "room comes when datasets or models are deleted ('trainyard dataset "
                         "delete', 'trainyard model delete')");
    }
  }
  return {};
}

}  // namespace trainyard::server
