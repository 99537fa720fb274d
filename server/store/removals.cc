#include "server/store/removals.h"

#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

std::string key_of(std::string_view path) { return "removal:" + std::string(path); }

template <typename Body>
Status change_settings(StoreCore& core, Body body) {
  return core.change_and_wait<void>(
      [body](WriteContext& context) -> Status {
        body(context.db);
        return {};
      },
      Urgency::kEssential);
}

}  // namespace

void note_removal(Connection& db, std::string_view path) {
  Query query(db, "INSERT OR IGNORE INTO settings (key, value) VALUES (?, x'01')");
  query.bind(key_of(path)).run();
}

void forget_removal(Connection& db, std::string_view path) {
  Query query(db, "DELETE FROM settings WHERE key = ?");
  query.bind(key_of(path)).run();
}

Result<std::vector<std::string>> RemovalStore::list() const {
  return core_.read<std::vector<std::string>>(
      [](Connection& db) -> Result<std::vector<std::string>> {
        // "removal:" has 8 characters, "removal:jobs/" 13 and "removal:datasets/" 17.
        Query query(
            db,
            "SELECT substr(key, 9) FROM settings WHERE key >= 'removal:' AND key < 'removal;'"
            " AND NOT (key LIKE 'removal:jobs/%'"
            "  AND EXISTS (SELECT 1 FROM jobs WHERE uid = substr(key, 14)))"
            " AND NOT (key LIKE 'removal:datasets/%'"
            "  AND EXISTS (SELECT 1 FROM datasets WHERE digest = substr(key, 18)))");
        std::vector<std::string> paths;
        while (query.step()) paths.push_back(query.text(0));
        return paths;
      });
}

Status RemovalStore::note(const std::string& path) {
  return change_settings(core_, [path](Connection& db) { note_removal(db, path); });
}

Status RemovalStore::forget(const std::string& path) {
  return change_settings(core_, [path](Connection& db) { forget_removal(db, path); });
}

Status RemovalStore::forget_all(std::vector<std::string> paths) {
  return change_settings(core_, [paths = std::move(paths)](Connection& db) {
    for (const std::string& path : paths) forget_removal(db, path);
  });
}

}  // namespace trainyard::server
