#include "server/store/migrations.h"

#include <array>

#include "server/store/migrations_sql.h"  // generated: kMigrations, in order from 1

namespace trainyard::server {

int newest_schema_version() { return static_cast<int>(std::size(kMigrations)); }

Status check_schema(Connection& db, const std::string& name) {
  const int version = std::stoi(db.query_text("PRAGMA user_version"));
  const int newest = newest_schema_version();
  if (version > newest)
    return make_error(ErrorCode::kFailedPrecondition, "STORE_NEWER",
                      name + " has schema " + std::to_string(version) +
                          ", but this trainyardd supports schemas only up to " +
                          std::to_string(newest) +
                          "; run the newer trainyardd that wrote it, or restore a backup");
  const int application = std::stoi(db.query_text("PRAGMA application_id"));
  const bool empty = db.query_text("SELECT count(*) FROM sqlite_schema") == "0";
  if (application != kApplicationId && !(empty && version == 0 && application == 0))
    return make_error(
        ErrorCode::kFailedPrecondition, "STORE_FOREIGN",
        name + " is an SQLite file, but not Trainyard's; choose another state directory");
  return {};
}

Status migrate(Connection& db, const std::string& name) {
  if (Status s = check_schema(db, name); !s.ok()) return s;
  const int version = std::stoi(db.query_text("PRAGMA user_version"));
  const int newest = newest_schema_version();
  for (int next = version + 1; next <= newest; ++next) {
    Transaction transaction(db, Transaction::Kind::kWrite);
    db.execute(kMigrations[next - 1]);
    db.execute(("PRAGMA application_id = " + std::to_string(kApplicationId)).c_str());
    db.execute(("PRAGMA user_version = " + std::to_string(next)).c_str());
    transaction.commit();
  }
  return {};
}

}  // namespace trainyard::server
