#include "server/store/migrations.h"

namespace trainyard::server {

int newest_schema_version() { return static_cast<int>(migrations().size()); }

int schema_version(Connection& db) { return std::stoi(db.query_text("PRAGMA user_version")); }

Status check_schema(Connection& db, const std::string& name, int newest) {
  const int version = schema_version(db);
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

Status migrate(Connection& db, const std::string& name, int newest) {
  if (Status s = check_schema(db, name, newest); !s.ok()) return s;
  const int version = schema_version(db);
  if (version == newest) return {};
  Transaction transaction(db, Transaction::Kind::kWrite);
  for (int next = version + 1; next <= newest; ++next) db.execute(migrations()[next - 1]);
  db.execute(("PRAGMA application_id = " + std::to_string(kApplicationId)).c_str());
  db.execute(("PRAGMA user_version = " + std::to_string(newest)).c_str());
  transaction.commit();
  return {};
}

}  // namespace trainyard::server
