#include "server/store/model_store.h"

#include <limits>
#include <utility>

#include "server/store/page_token.h"
#include "server/store/proto_time.h"
#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

#define MODEL_COLUMNS                                                                          \
  "tenant, id, job_uid, digest, size_bytes, parameter_count, metrics, schema, create_time_us," \
  " number"
constexpr int kNumberColumn = 9;

Model read_model(const Query& row) {
  Model m;
  m.tenant = row.text(0);
  m.id = row.text(1);
  m.job_uid = row.text(2);
  m.digest = row.text(3);
  m.size_bytes = row.integer(4);
  m.parameter_count = row.integer(5);
  if (!m.metrics.ParseFromString(row.text(6)) || !m.schema.ParseFromString(row.text(7)))
    throw SqliteError(SQLITE_CORRUPT, 0, "a model's blob does not parse");
  m.create_time_us = row.integer(8);
  return m;
}

Result<Model> get_model(Connection& db, const std::string& tenant, const std::string& id) {
  Query query(db, "SELECT " MODEL_COLUMNS " FROM models WHERE tenant = ? AND id = ?");
  query.bind(tenant).bind(id);
  if (query.step()) return read_model(query);
  return make_error(ErrorCode::kNotFound, "MODEL_NOT_FOUND",
                    "name: there is no model tenants/" + tenant + "/models/" + id + ".");
}

}  // namespace

v1::Model to_proto(const Model& m) {
  v1::Model out;
  out.set_name(m.name());
  // A model is named by the job that trained it.
  out.set_job("tenants/" + m.tenant + "/jobs/" + m.id);
  out.set_digest(m.digest);
  out.set_size_bytes(m.size_bytes);
  out.set_parameter_count(m.parameter_count);
  *out.mutable_metrics() = m.metrics.metrics();
  *out.mutable_schema() = m.schema;
  *out.mutable_create_time() = to_timestamp(m.create_time_us);
  return out;
}

Result<Model> ModelStore::find(const std::string& tenant, const std::string& id) const {
  return core_.read<Model>([&](Connection& db) { return get_model(db, tenant, id); });
}

Result<ModelPage> ModelStore::list(const std::string& tenant, int32_t page_size,
                                   const std::string& page_token) const {
  ASSIGN_OR_RETURN(const int64_t count_max, page_size_of(page_size));
  const std::string signed_query = "models " + tenant;
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!page_token.empty()) {
    ASSIGN_OR_RETURN(before, read_page_token(core_.page_token_key, signed_query, page_token));
  }
  return core_.read<ModelPage>([&](Connection& db) -> Result<ModelPage> {
    ModelPage page;
    Query query(db, "SELECT " MODEL_COLUMNS
                    " FROM models WHERE tenant = ? AND number < ? ORDER BY number DESC LIMIT ?");
    query.bind(tenant).bind(before).bind(count_max + 1);
    int64_t last = 0;
    while (query.step()) {
      if (static_cast<int64_t>(page.models.size()) == count_max) {
        page.next_page_token = make_page_token(core_.page_token_key, signed_query, last);
        break;
      }
      last = query.integer(kNumberColumn);
      page.models.push_back(read_model(query));
    }
    return page;
  });
}

void ModelStore::remove(std::string tenant, std::string id, Done<Model> done) {
  core_.change<Model>(
      [tenant = std::move(tenant), id = std::move(id)](WriteContext& context) -> Result<Model> {
        ASSIGN_OR_RETURN(Model model, get_model(context.db, tenant, id));
        Query query(context.db, "DELETE FROM models WHERE tenant = ? AND id = ?");
        query.bind(tenant).bind(id).run();
        return model;
      },
      std::move(done), Urgency::kEssential);
}
Result<Model> ModelStore::remove(const std::string& tenant, const std::string& id) {
  return wait_for<Model>(core_, [&](Done<Model> done) { remove(tenant, id, std::move(done)); });
}

}  // namespace trainyard::server
