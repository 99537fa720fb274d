#include "server/store/usage_books.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "server/store/owner_uses.h"

namespace trainyard::server {
namespace {

// A clock that jumped by years must not fill the books with days.
constexpr int64_t kDaysOfAttemptMax = 400;

/// A row of device_reservations.
struct Reservation {
  std::string project, person, device_kind;
  int64_t devices = 1;
  int64_t start_us = 0;
  int64_t forecast_us = 0;
  double price_per_hour = 0;
  int64_t used_us(int64_t until_us) const {
    return devices * std::max<int64_t>(0, until_us - start_us);
  }
};

#define RESERVATION_COLUMNS \
  "project, person, device_kind, devices, start_time_us, forecast_us, price_per_hour"

Reservation read_reservation(const Query& row) {
  return {row.text(0),    row.text(1),    row.text(2), row.integer(3),
          row.integer(4), row.integer(5), row.real(6)};
}

/// Calls `take(day, us)` for each day between the times, oldest first.
void split_by_day(int64_t start_us, int64_t end_us,
                  const std::function<void(int64_t day, int64_t us)>& take) {
  start_us = std::max({start_us, int64_t{0}, end_us - kDaysOfAttemptMax * kQuotaDayUs});
  while (start_us < end_us) {
    const int64_t day = start_us / kQuotaDayUs;
    const int64_t until_us = std::min(end_us, (day + 1) * kQuotaDayUs);
    take(day, until_us - start_us);
    start_us = until_us;
  }
}

double cost_of(int64_t device_us, double price_per_hour) {
  return static_cast<double>(device_us) / static_cast<double>(kQuotaHourUs) * price_per_hour;
}

void for_each_reservation(Connection& db, const QuotaScope& scope,
                          const std::function<void(const Reservation&)>& take) {
  Query open(
      db, "SELECT " RESERVATION_COLUMNS
          " FROM device_reservations WHERE (?1 = '' OR project = ?1) AND (?2 = '' OR person = ?2)");
  open.bind(scope.project).bind(scope.person);
  while (open.step()) take(read_reservation(open));
}

/// Sums the days of ended attempts and the reservations that a quota of device-hours covers.
DeviceQuota hours_of(Connection& db, const Quota& quota, int64_t now_us) {
  DeviceQuota out{quota.kind, quota.scope, quota.max * kQuotaHourUs, 0, {}};
  const int64_t today = now_us / kQuotaDayUs;
  {
    Query days(db,
               "SELECT day, sum(device_us) FROM device_uses WHERE day > ?1"
               " AND (?2 = '' OR project = ?2) AND (?3 = '' OR person = ?3)"
               " GROUP BY day ORDER BY day");
    days.bind(today - kQuotaDays).bind(quota.scope.project).bind(quota.scope.person);
    while (days.step()) {
      out.ends.push_back({(days.integer(0) + kQuotaDays) * kQuotaDayUs, days.integer(1)});
      out.used += days.integer(1);
    }
  }
  int64_t reserved_us = 0;
  for_each_reservation(db, quota.scope, [&](const Reservation& one) {
    reserved_us += std::max(one.forecast_us, one.used_us(now_us));
  });
  out.used += reserved_us;
  if (reserved_us > 0) out.ends.push_back({(today + kQuotaDays) * kQuotaDayUs, reserved_us});
  // A clock that was set back may have left days after today.
  std::ranges::stable_sort(out.ends, {}, &DeviceQuota::End::time_us);
  return out;
}

DeviceQuota devices_of(Connection& db, const Quota& quota, int64_t now_us) {
  DeviceQuota out{quota.kind, quota.scope, quota.max, 0, {}};
  for_each_reservation(db, quota.scope, [&](const Reservation& one) {
    out.used += one.devices;
    const int64_t end_us = one.start_us + one.forecast_us / one.devices;
    if (end_us > now_us) out.ends.push_back({end_us, one.devices});
  });
  std::ranges::sort(out.ends, {}, &DeviceQuota::End::time_us);
  return out;
}

}  // namespace

std::string device_kind_of(std::string_view device) {
  if (device.starts_with(kClusterPrefix)) return std::string(device);
  return device == "devices/cpu" ? "cpu" : "gpu";
}

JobNeeds needs_of(const JobBrief& job) {
  constexpr double kLongestS = 1e9;  // about 30 years, so that products do not overflow
  JobNeeds needs;
  const bool placed = !job.devices.empty();
  const bool may_cpu =
      placed ? job.devices.front() == "devices/cpu" : job.resources.device() != v1::Resources::GPU;
  const bool may_gpu = placed ? !may_cpu : job.resources.device() != v1::Resources::CPU;
  double seconds = may_gpu ? job.on_gpu.rest_s : 0;
  if (may_cpu && job.on_cpu.rest_s > 0) {
    seconds = seconds > 0 ? std::min(seconds, job.on_cpu.rest_s) : job.on_cpu.rest_s;
  }
  if (job.resources.has_time_limit_seconds()) {
    const double left = std::max(0.0, static_cast<double>(job.resources.time_limit_seconds()) -
                                          static_cast<double>(job.run_time_us) / 1e6);
    seconds = seconds > 0 ? std::min(seconds, left) : left;
  }
  needs.devices =
      placed ? count_devices(job.devices, job.resources) : devices_wanted(job.resources);
  needs.device_us = static_cast<int64_t>(std::clamp(seconds, 0.0, kLongestS) * 1e6) * needs.devices;
  return needs;
}

void reserve_use(Connection& db, const Job& job, int32_t attempt, const DevicePrices& prices) {
  const JobNeeds needs = needs_of(brief_of(job));
  const std::string kind = device_kind_of(job.device());
  const auto price = prices.find(kind);
  Query query(db,
              "INSERT INTO device_reservations (job, attempt, project, person, device_kind,"
              " devices, start_time_us, forecast_us, price_per_hour)"
              " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
  query.bind(job.order).bind(int64_t{attempt}).bind(job.project).bind(job.owner).bind(kind);
  query.bind(needs.devices).bind(job.event_time_us).bind(needs.device_us);
  query.bind_real(price == prices.end() ? 0 : price->second).run();
}

void settle_use(Connection& db, const Job& job, int32_t attempt, int64_t end_us) {
  Reservation of;
  {
    Query query(db,
                "DELETE FROM device_reservations WHERE job = ? AND attempt = ?"
                " RETURNING " RESERVATION_COLUMNS);
    query.bind(job.order).bind(int64_t{attempt});
    if (!query.step()) return;
    of = read_reservation(query);
    (void)query.step();  // the deletion takes effect with the last row
  }
  split_by_day(of.start_us, end_us, [&](int64_t day, int64_t us) {
    const int64_t device_us = of.devices * us;
    Query add(db,
              "INSERT INTO device_uses (day, project, person, device_kind, device_us, priced_us,"
              " cost, metered_us, energy_joules) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)"
              " ON CONFLICT (day, project, person, device_kind) DO UPDATE SET"
              " device_us = device_us + excluded.device_us,"
              " priced_us = priced_us + excluded.priced_us, cost = cost + excluded.cost");
    add.bind(day).bind(of.project).bind(of.person).bind(of.device_kind).bind(device_us);
    add.bind(of.price_per_hour > 0 ? device_us : 0);
    add.bind_real(cost_of(device_us, of.price_per_hour)).run();
  });
  note_use(db, of.person, of.devices, of.start_us, end_us);
}

void add_energy_use(Connection& db, const MeasuredEnergy& energy) {
  const double all_us = static_cast<double>(energy.end_us - energy.start_us);
  split_by_day(energy.start_us, energy.end_us, [&](int64_t day, int64_t us) {
    Query add(db,
              "UPDATE device_uses SET metered_us = metered_us + ?,"
              " energy_joules = energy_joules + ?"
              " WHERE day = ? AND project = ? AND person = ? AND device_kind = ?");
    add.bind(energy.devices * us).bind_real(energy.joules * static_cast<double>(us) / all_us);
    add.bind(day).bind(energy.project).bind(energy.person).bind(energy.device_kind).run();
  });
}

std::vector<DeviceUse> read_device_uses(Connection& db, int64_t first_day, int64_t end_day,
                                        int64_t now_us) {
  std::map<std::tuple<int64_t, std::string, std::string, std::string>, DeviceUse> uses;
  {
    Query query(db,
                "SELECT day, project, person, device_kind, device_us, priced_us, cost, metered_us,"
                " energy_joules FROM device_uses WHERE day >= ? AND day < ?");
    query.bind(first_day).bind(end_day);
    while (query.step()) {
      DeviceUse use;
      use.day = query.integer(0);
      use.project = query.text(1);
      use.person = query.text(2);
      use.device_kind = query.text(3);
      use.device_us = query.integer(4);
      use.priced_us = query.integer(5);
      use.cost = query.real(6);
      use.metered_us = query.integer(7);
      use.energy_joules = query.real(8);
      uses[{use.day, use.project, use.person, use.device_kind}] = use;
    }
  }
  const auto use_on = [&](const Reservation& of, int64_t day) -> DeviceUse& {
    DeviceUse& use = uses[{day, of.project, of.person, of.device_kind}];
    use.day = day;
    use.project = of.project;
    use.person = of.person;
    use.device_kind = of.device_kind;
    return use;
  };
  const int64_t today = now_us / kQuotaDayUs;
  for_each_reservation(db, {}, [&](const Reservation& of) {
    split_by_day(of.start_us, now_us, [&](int64_t day, int64_t us) {
      if (day < first_day || day >= end_day) return;
      DeviceUse& use = use_on(of, day);
      use.device_us += of.devices * us;
      if (of.price_per_hour <= 0) return;
      use.priced_us += of.devices * us;
      use.cost += cost_of(of.devices * us, of.price_per_hour);
    });
    const int64_t rest_us = of.forecast_us - of.used_us(now_us);
    if (rest_us > 0 && today >= first_day && today < end_day) {
      use_on(of, today).reserved_us += rest_us;
    }
  });
  std::vector<DeviceUse> sorted;
  for (auto& [key, use] : uses) sorted.push_back(std::move(use));
  return sorted;
}

DeviceQuota device_quota_of(Connection& db, const Quota& quota, int64_t now_us) {
  return quota.kind == QuotaKind::kDevices ? devices_of(db, quota, now_us)
                                           : hours_of(db, quota, now_us);
}

}  // namespace trainyard::server
