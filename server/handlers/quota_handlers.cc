#include "server/handlers/quota_handlers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "server/config/log.h"
#include "server/store/people_store.h"
#include "server/store/proto_time.h"
#include "src/base/text.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {
namespace {

constexpr std::string_view kProjects = "projects/";

std::string project_name(const std::string& project) {
  return project.empty() ? project : std::string(kProjects) + project;
}

/// Returns the project's ID; empty for an empty field.
Result<std::string> read_project(const std::string& field) {
  if (field.empty()) return std::string();
  const bool well_formed = field.starts_with(kProjects) && field.size() > kProjects.size() &&
                           field.find('/', kProjects.size()) == std::string::npos;
  if (well_formed) return field.substr(kProjects.size());
  return field_error("NAME_MALFORMED", "project",
                     quoted_value(field) + " is not a project, expected projects/{project}");
}

v1::Quota to_proto(const QuotaUse& use) {
  const Quota& quota = use.quota;
  v1::Quota out;
  out.set_kind(static_cast<v1::Quota::Kind>(quota.kind));
  out.set_project(project_name(quota.scope.project));
  out.set_person(quota.scope.person);
  out.set_limit(quota.max);
  const bool in_hours = quota.kind == QuotaKind::kDeviceHours;
  out.set_used(static_cast<double>(use.used) /
               (in_hours ? static_cast<double>(kQuotaHourUs) : 1.0));
  return out;
}

Result<Quota> read_quota(const QuotaParts& parts, const v1::SetQuotaRequest& request,
                         const Principal& principal) {
  if (request.kind() == v1::Quota::KIND_UNSPECIFIED || !v1::Quota::Kind_IsValid(request.kind())) {
    return field_error("FIELD_REQUIRED", "kind",
                       "expected QUEUED_JOBS, DEVICES, DEVICE_HOURS, STORED_BYTES or MODEL_CALLS");
  }
  Quota quota;
  quota.kind = static_cast<QuotaKind>(request.kind());
  ASSIGN_OR_RETURN(quota.scope.project, read_project(request.project()));
  quota.scope.person = request.person();
  if (quota.scope.project.empty() && quota.scope.person.empty()) {
    return field_error("FIELD_REQUIRED", "project",
                       "is missing: expected a project, a person, or both");
  }
  if (request.remove()) {
    if (!request.has_limit()) return quota;
    return field_error("FIELD_UNUSED", "limit", "has no effect with remove");
  }
  if (!request.has_limit()) return field_error("FIELD_REQUIRED", "limit", "is missing");
  if (request.limit() < 0 || request.limit() > kQuotaMax) {
    return field_error("FIELD_OUT_OF_RANGE", "limit",
                       std::to_string(request.limit()) + " is out of range, expected 0 to " +
                           std::to_string(kQuotaMax));
  }
  if (!quota.scope.project.empty() &&
      parts.people.role(principal, quota.scope.project) == ProjectRole::kNone) {
    return project_not_found(quota.scope.project);
  }
  quota.max = request.limit();
  return quota;
}

Result<v1::Quota> set_quota(const QuotaParts& parts, const v1::SetQuotaRequest& request,
                            const CallInfo& call) {
  ASSIGN_OR_RETURN(const Quota quota, read_quota(parts, request, call.principal));
  QuotaStore& store = parts.store.quotas();
  const Status changed =
      request.remove() ? store.remove(quota.kind, quota.scope) : store.set(quota);
  if (!changed.ok()) return changed.error();
  if (Status s = parts.call_quotas.reload(); !s.ok()) return s.error();
  parts.quotas_changed();
  spdlog::info("event=quota_changed {} {} limit={} removed={}", kv("quota", name_of(quota.kind)),
               kv("scope", quota.scope.text()), quota.max, request.remove());
  return to_proto({quota, 0});
}

/// A quota of a project is seen by all who see the project, one of a person in it by that person
/// and the maintainers, and one of a person in all projects by that person. Admins see all.
bool may_see(const People& people, const Principal& principal, const Quota& quota) {
  if (people.server_role(principal) == ServerRole::kAdmin) return true;
  const bool is_own = quota.scope.person == principal.person;
  if (quota.scope.project.empty()) return is_own;
  return people.role(principal, quota.scope.project) >=
         (is_own || quota.scope.person.empty() ? ProjectRole::kViewer : ProjectRole::kMaintainer);
}

Result<v1::ListQuotasResponse> list_quotas(const QuotaParts& parts,
                                           const v1::ListQuotasRequest& request,
                                           const CallInfo& call) {
  const auto visible = [&](const Quota& quota) {
    return may_see(parts.people, call.principal, quota);
  };
  ASSIGN_OR_RETURN(const QuotaStore::Page page,
                   parts.store.quotas().list_page(visible, request.page_size(),
                                                  request.page_token(), parts.clock.wall_us()));
  v1::ListQuotasResponse response;
  for (const QuotaUse& use : page.quotas) *response.add_quotas() = to_proto(use);
  response.set_next_page_token(page.next_page_token);
  return response;
}

std::string day_text(int64_t day) {
  const std::time_t seconds = day * (kQuotaDayUs / 1'000'000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts)};
}

struct Days {
  int64_t first = 0, end = 0;
};
Result<Days> read_days(const v1::GetUsageRequest& request, int64_t now_us) {
  ASSIGN_OR_RETURN(const int64_t since_us, from_timestamp("since_time", request.since_time()));
  ASSIGN_OR_RETURN(const int64_t until_us, from_timestamp("until_time", request.until_time()));
  const int64_t last = (until_us > 0 ? until_us : now_us) / kQuotaDayUs;
  const Days days{since_us > 0 ? since_us / kQuotaDayUs : last - kQuotaDays + 1, last + 1};
  if (days.first < days.end) return days;
  return field_error("FIELD_OUT_OF_RANGE", "since_time", "is later than until_time");
}

void add(const DeviceUse& use, v1::UsageRow& row) {
  const auto seconds = [](int64_t us) { return static_cast<double>(us) / 1e6; };
  row.set_device_seconds(row.device_seconds() + seconds(use.device_us));
  row.set_reserved_device_seconds(row.reserved_device_seconds() + seconds(use.reserved_us));
  if (use.metered_us > 0) {
    row.set_energy_joules(row.energy_joules() + use.energy_joules);
    row.set_metered_device_seconds(row.metered_device_seconds() + seconds(use.metered_us));
  }
  if (use.priced_us > 0) {
    row.set_cost(row.cost() + use.cost);
    row.set_priced_device_seconds(row.priced_device_seconds() + seconds(use.priced_us));
  }
}

Result<v1::GetUsageResponse> get_usage(const QuotaParts& parts, const v1::GetUsageRequest& request,
                                       const CallInfo& call) {
  ASSIGN_OR_RETURN(const std::string project, read_project(request.project()));
  if (!project.empty() && parts.people.role(call.principal, project) == ProjectRole::kNone) {
    return project_not_found(project);
  }
  std::set<v1::GetUsageRequest::Dimension> by;
  for (const int dimension : request.by()) {
    if (dimension < v1::GetUsageRequest::PROJECT || dimension > v1::GetUsageRequest::DAY) {
      return field_error("FIELD_OUT_OF_RANGE", "by", "expected PROJECT, PERSON, DEVICE and DAY");
    }
    by.insert(static_cast<v1::GetUsageRequest::Dimension>(dimension));
  }
  const int64_t now_us = parts.clock.wall_us();
  ASSIGN_OR_RETURN(const Days days, read_days(request, now_us));
  ASSIGN_OR_RETURN(const std::vector<DeviceUse> uses,
                   parts.store.quotas().device_uses(days.first, days.end, now_us));
  const bool sees_all = parts.people.server_role(call.principal) == ServerRole::kAdmin;
  std::map<std::string, ProjectRole> roles;  // by project
  const auto is_visible = [&](const DeviceUse& use) {
    if (sees_all) return true;
    const auto [entry, is_new] = roles.try_emplace(use.project, ProjectRole::kNone);
    if (is_new) entry->second = parts.people.role(call.principal, use.project);
    const bool is_own = use.person == call.principal.person;
    return entry->second >= (is_own ? ProjectRole::kViewer : ProjectRole::kMaintainer);
  };
  const auto value = [&](v1::GetUsageRequest::Dimension dimension, std::string text) {
    return by.contains(dimension) ? std::move(text) : std::string();
  };
  std::map<std::tuple<std::string, std::string, std::string, std::string>, v1::UsageRow> rows;
  for (const DeviceUse& use : uses) {
    if (!project.empty() && use.project != project) continue;
    if (!request.person().empty() && use.person != request.person()) continue;
    if (!is_visible(use)) continue;
    const std::string day = value(v1::GetUsageRequest::DAY, day_text(use.day));
    const std::string of = value(v1::GetUsageRequest::PROJECT, project_name(use.project));
    const std::string person = value(v1::GetUsageRequest::PERSON, use.person);
    const std::string kind = value(v1::GetUsageRequest::DEVICE, use.device_kind);
    v1::UsageRow& row = rows[{day, of, person, kind}];
    row.set_day(day);
    row.set_project(of);
    row.set_person(person);
    row.set_device_kind(kind);
    add(use, row);
  }
  v1::GetUsageResponse response;
  for (auto& [key, row] : rows) *response.add_rows() = std::move(row);
  *response.mutable_first_day() = to_timestamp(days.first * kQuotaDayUs);
  *response.mutable_end_day() = to_timestamp(days.end * kQuotaDayUs);
  return response;
}

}  // namespace

void add_quota_rows(Methods& rows, const QuotaParts& parts) {
  rows.add("SetQuota", parts, &set_quota);
  rows.add("ListQuotas", parts, &list_quotas);
  rows.add("GetUsage", parts, &get_usage);
}

}  // namespace trainyard::server
