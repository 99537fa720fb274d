#include "server/store/owner_uses.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "server/store/sqlite.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {

constexpr double kSecond = 1e6;
constexpr int64_t kHalfLives = 12;  // after 12 half-lives less than a thousandth of a use is left

int64_t kept_half_life(Connection& db) {
  Query query(db, "SELECT CAST(value AS INTEGER) FROM settings WHERE key = 'share_half_life_us'");
  return query.step() ? query.integer(0) : 0;
}

std::optional<OwnerUse> find_use(Connection& db, const std::string& owner) {
  Query query(db, "SELECT used, as_of_us FROM owner_uses WHERE owner = ?");
  query.bind(owner);
  if (!query.step()) return std::nullopt;
  return OwnerUse{owner, query.real(0), query.integer(1)};
}

void save_use(Connection& db, const OwnerUse& use) {
  Query query(db, "INSERT OR REPLACE INTO owner_uses (owner, used, as_of_us) VALUES (?, ?, ?)");
  query.bind(use.owner).bind_real(use.used).bind(use.as_of_us).run();
}

void add_use(Connection& db, const std::string& owner, int64_t devices, int64_t start_us,
             int64_t end_us, int64_t half_life_us) {
  if (end_us <= start_us) return;
  OwnerUse use = find_use(db, owner).value_or(OwnerUse{owner, 0, end_us});
  const int64_t as_of_us = std::max(use.as_of_us, end_us);
  const double past = use_after(0, devices, end_us - start_us, half_life_us);
  use.used = use_after(use.used, 0, as_of_us - use.as_of_us, half_life_us) +
             use_after(past, 0, as_of_us - end_us, half_life_us);
  use.as_of_us = as_of_us;
  save_use(db, use);
}

/// Returns the number of devices of an attempt. Its own row names only the first device, but all
/// attempts of a job have the same number of devices. `more` lists the job's other devices,
/// separated by spaces.
int64_t count_names(const std::string& first, const std::string& more) {
  return (first.empty() ? 0 : 1) + (more.empty() ? 0 : 1 + std::ranges::count(more, ' '));
}
AttemptUse use_of(const Query& row) {
  return {row.text(0), count_names(row.text(1), row.text(2)), row.integer(3)};
}

std::vector<OwnerUse> read_past(Connection& db) {
  std::vector<OwnerUse> past;
  Query query(db, "SELECT owner, used, as_of_us FROM owner_uses");
  while (query.step()) past.push_back({query.text(0), query.real(1), query.integer(2)});
  return past;
}

/// Replaces all stored uses by those of the attempts that are still stored and ended within the
/// last kHalfLives.
void recount(Connection& db, int64_t half_life_us, int64_t now_us) {
  db.execute("DELETE FROM owner_uses");
  std::vector<std::pair<AttemptUse, int64_t>> ended;
  {
    Query query(db,
                "SELECT owner, jobs.device, more_devices, attempts.start_time_us,"
                " attempts.end_time_us FROM attempts INDEXED BY attempts_by_end"
                " JOIN jobs ON jobs.number = attempts.job WHERE attempts.end_time_us > ?"
                " ORDER BY attempts.end_time_us");
    query.bind(std::max<int64_t>(0, now_us - kHalfLives * half_life_us));
    while (query.step()) ended.emplace_back(use_of(query), query.integer(4));
  }
  for (const auto& [use, end_us] : ended) {
    add_use(db, use.owner, use.devices, use.start_us, end_us, half_life_us);
  }
}

}  // namespace

double use_after(double used, int64_t devices, int64_t us, int64_t half_life_us) {
  TRAINYARD_CHECK(half_life_us > 0 && devices >= 0, "the use of " + std::to_string(devices) +
                                                        " devices decays with a half-life of " +
                                                        std::to_string(half_life_us) + " us");
  const double seconds = static_cast<double>(std::max<int64_t>(0, us)) / kSecond;
  const double rate = std::numbers::ln2 * kSecond / static_cast<double>(half_life_us);
  const double kept = std::exp(-rate * seconds);
  return used * kept + static_cast<double>(devices) * (1 - kept) / rate;
}

void note_use(Connection& db, const std::string& owner, int64_t devices, int64_t start_us,
              int64_t end_us) {
  const int64_t half_life_us = kept_half_life(db);
  if (half_life_us > 0) add_use(db, owner, devices, start_us, end_us, half_life_us);
}

void keep_uses(Connection& db, int64_t half_life_us, int64_t now_us) {
  const int64_t before_us = kept_half_life(db);
  if (before_us == half_life_us) return;
  if (half_life_us == 0) {
    db.execute("DELETE FROM owner_uses");
    db.execute("DELETE FROM settings WHERE key = 'share_half_life_us'");
    return;
  }
  Query query(db, "INSERT OR REPLACE INTO settings (key, value) VALUES ('share_half_life_us', ?)");
  query.bind_blob(std::to_string(half_life_us)).run();
  if (before_us == 0) return recount(db, half_life_us, now_us);
  for (OwnerUse use : read_past(db)) {  // each use has decayed with the old half-life so far
    if (now_us <= use.as_of_us) continue;
    use.used = use_after(use.used, 0, now_us - use.as_of_us, before_us);
    use.as_of_us = now_us;
    save_use(db, use);
  }
}

Uses read_uses(Connection& db) {
  Uses uses;
  uses.past = read_past(db);
  Query query(db, "SELECT person, devices, start_time_us FROM device_reservations");
  while (query.step()) {
    uses.running.push_back({query.text(0), query.integer(1), query.integer(2)});
  }
  return uses;
}

}  // namespace trainyard::server
