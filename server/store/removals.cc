#include "server/store/removals.h"

#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

constexpr std::string_view kKeyPrefix = "removal:";

std::string key_of(std::string_view path) { return std::string(kKeyPrefix) + std::string(path); }

}  // namespace

void note_removal(Connection& db, std::string_view path) {
  Query query(db, "INSERT OR IGNORE INTO settings (key, value) VALUES (?, x'01')");
  query.bind(key_of(path)).run();
}

Result<std::vector<std::string>> RemovalStore::list() const {
  return core_.read<std::vector<std::string>>(
      [](Connection& db) -> Result<std::vector<std::string>> {
        Query query(
            db,
            "SELECT substr(key, 9) FROM settings WHERE key >= 'removal:' AND key < 'removal;'"
            " AND substr(key, 9) NOT IN (SELECT 'datasets/' || digest FROM datasets)");
        std::vector<std::string> paths;
        while (query.step()) paths.push_back(query.text(0));
        return paths;
      });
}

Status RemovalStore::forget(const std::string& path) {
  return wait_for<void>(core_, [&](Done<void> done) {
    core_.change<void>(
        [key = key_of(path)](WriteContext& context) -> Status {
          Query(context.db, "DELETE FROM settings WHERE key = ?").bind(key).run();
          return {};
        },
        std::move(done), Urgency::kEssential);
  });
}

}  // namespace trainyard::server
