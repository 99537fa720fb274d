#include "server/store/owner_store.h"

#include <vector>

#include "server/store/dataset_ref.h"
#include "server/store/job_rows.h"
#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

std::optional<std::string> owner_in(Connection& db, const char* sql, std::string_view project,
                                    std::string_view id) {
  Query query(db, sql);
  query.bind(project).bind(id);
  if (!query.step()) return std::nullopt;
  return query.text(0);
}

std::optional<std::string> dataset_owner(Connection& db, std::string_view project,
                                         std::string_view id) {
  const std::optional<DatasetRef> ref = parse_dataset_ref(id);
  if (!ref) return std::nullopt;
  Query query(db,
              "SELECT count(*), min(owner), max(owner) FROM datasets"
              " WHERE project = ? AND id = ? AND ? IN (0, version)");
  query.bind(project).bind(ref->id).bind(int64_t{ref->version});
  if (!query.step() || query.integer(0) == 0) return std::nullopt;
  return query.bytes(1) == query.bytes(2) ? query.text(1) : std::string();
}

}  // namespace

Result<std::optional<std::string>> OwnerStore::find(std::string_view project,
                                                    std::string_view collection,
                                                    std::string_view id) const {
  using Owner = std::optional<std::string>;
  return core_.read<Owner>([&](Connection& db) -> Result<Owner> {
    if (collection == "jobs") {
      return owner_in(db, "SELECT owner FROM jobs WHERE project = ? AND id = ?", project, id);
    }
    if (collection == "arrays") {
      return owner_in(db, "SELECT owner FROM arrays WHERE project = ? AND id = ?", project, id);
    }
    if (collection == "models") {
      return owner_in(db, "SELECT owner FROM models WHERE project = ? AND id = ?", project, id);
    }
    if (collection == "datasets") return dataset_owner(db, project, id);
    return Owner();
  });
}

void give_owned(WriteContext& context, const std::string& from, const std::string& to) {
  if (from == to) return;
  std::vector<int64_t> unfinished;
  {
    Query query(context.db,
                "SELECT number FROM jobs INDEXED BY jobs_by_owner WHERE owner = ? AND state < 5");
    query.bind(from);
    while (query.step()) unfinished.push_back(query.integer(0));
  }
  for (const char* sql :
       {"UPDATE jobs SET owner = ? WHERE owner = ?", "UPDATE arrays SET owner = ? WHERE owner = ?",
        "UPDATE datasets SET owner = ? WHERE owner = ?",
        "UPDATE models SET owner = ? WHERE owner = ?"}) {
    Query(context.db, sql).bind(to).bind(from).run();
  }
  // The scheduler orders jobs by owner.
  for (const int64_t number : unfinished) {
    Job job = get_job_numbered(context.db, number);
    JobEdit(context, job).notify(/*reschedules=*/true);
  }
}

Owned owned_by(Connection& db, std::string_view person) {
  const auto count = [&](const char* sql) {
    Query query(db, sql);
    query.bind(person);
    return query.step() ? query.integer(0) : 0;
  };
  return {count("SELECT count(*) FROM jobs INDEXED BY jobs_by_owner WHERE owner = ? AND state < 5"),
          count("SELECT count(*) FROM datasets WHERE owner = ?"),
          count("SELECT count(*) FROM models WHERE owner = ?")};
}

}  // namespace trainyard::server
