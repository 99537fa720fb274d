#include "server/store/quota_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/store/job_rows.h"
#include "server/store/page_token.h"
#include "server/store/quota_rows.h"
#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

bool is_of_devices(const Quota& quota) {
  return quota.kind == QuotaKind::kDevices || quota.kind == QuotaKind::kDeviceHours;
}

int64_t count_quotas(Connection& db) {
  Query query(db, "SELECT count(*) FROM quotas");
  return query.step() ? query.integer(0) : 0;
}

}  // namespace

QuotaStore::QuotaStore(StoreCore& core) : core_(core) { note_device_quotas(); }

/// If the quotas cannot be read, each scheduling pass tries again.
void QuotaStore::note_device_quotas() {
  const Result<std::vector<Quota>> quotas = list();
  has_device_quotas_ = !quotas.ok() || std::ranges::any_of(*quotas, is_of_devices);
}

Status QuotaStore::set(const Quota& quota) {
  Status stored = core_.change_and_wait<void>([quota](WriteContext& context) -> Status {
    Query query(context.db,
                "INSERT OR REPLACE INTO quotas (kind, project, person, max) VALUES (?, ?, ?, ?)");
    query.bind(static_cast<int64_t>(quota.kind)).bind(quota.scope.project);
    query.bind(quota.scope.person).bind(quota.max).run();
    if (count_quotas(context.db) <= kQuotasMax) return {};
    return make_error(
        ErrorCode::kResourceExhausted, "QUOTAS_TOO_MANY",
        "there are already " + std::to_string(kQuotasMax) + " quotas; remove some first.");
  });
  note_device_quotas();
  return stored;
}

Status QuotaStore::remove(QuotaKind kind, const QuotaScope& scope) {
  Status removed = core_.change_and_wait<void>(
      [kind, scope](WriteContext& context) -> Status {
        Query query(context.db, "DELETE FROM quotas WHERE kind = ? AND project = ? AND person = ?");
        query.bind(static_cast<int64_t>(kind)).bind(scope.project).bind(scope.person).run();
        if (context.db.changes() > 0) return {};
        return make_error(ErrorCode::kNotFound, "QUOTA_NOT_FOUND",
                          scope.text() + " has no quota " + std::string(name_of(kind)) + ".");
      },
      Urgency::kEssential);
  note_device_quotas();
  return removed;
}

Result<std::vector<Quota>> QuotaStore::list() const {
  return core_.read<std::vector<Quota>>(
      [](Connection& db) -> Result<std::vector<Quota>> { return read_quotas(db); });
}

Result<QuotaStore::Page> QuotaStore::list_page(const std::function<bool(const Quota&)>& visible,
                                               int32_t page_size, const std::string& page_token,
                                               int64_t now_us) const {
  constexpr const char* kQuery = "quotas";
  ASSIGN_OR_RETURN(const int64_t count, page_size_of(page_size));
  int64_t skip = 0;
  if (!page_token.empty()) {
    ASSIGN_OR_RETURN(skip, read_page_token(core_.page_token_key, kQuery, page_token));
  }
  return core_.read<Page>([&](Connection& db) -> Result<Page> {
    Page page;
    int64_t position = 0;
    for (const Quota& quota : read_quotas(db)) {
      if (++position <= skip || !visible(quota)) continue;
      if (std::ssize(page.quotas) == count) {
        page.next_page_token = make_page_token(core_.page_token_key, kQuery, position - 1);
        break;
      }
      page.quotas.push_back({quota, used_of(db, quota, now_us)});
    }
    return page;
  });
}

Result<std::vector<DeviceQuota>> QuotaStore::device_quotas(int64_t now_us) const {
  if (!has_device_quotas_) return std::vector<DeviceQuota>();
  return core_.read<std::vector<DeviceQuota>>(
      [now_us](Connection& db) -> Result<std::vector<DeviceQuota>> {
        return read_device_quotas(db, now_us);
      });
}

void QuotaStore::add_energy(std::string job_uid, int32_t attempt, double joules, Done<void> done) {
  core_.change<void>(
      [job_uid = std::move(job_uid), attempt, joules](WriteContext& context) -> Status {
        const std::optional<Job> job = find_job_uid(context.db, job_uid);
        if (!job) return {};
        const std::optional<Attempt> row = find_attempt_row(context.db, *job, attempt);
        if (!row || row->end_time_us == 0 || row->shared) return {};
        add_energy_use(context.db, {job->project, job->owner, device_kind_of(row->device),
                                    count_devices(job->devices, job->spec.resources()),
                                    row->start_time_us, row->end_time_us, joules});
        return {};
      },
      std::move(done), Urgency::kPatient);
}

Result<std::vector<DeviceUse>> QuotaStore::device_uses(int64_t first_day, int64_t end_day,
                                                       int64_t now_us) const {
  return core_.read<std::vector<DeviceUse>>([=](Connection& db) -> Result<std::vector<DeviceUse>> {
    return read_device_uses(db, first_day, end_day, now_us);
  });
}

}  // namespace trainyard::server
