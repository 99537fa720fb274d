#include "server/store/model_store.h"

#include <limits>
#include <optional>
#include <utility>

#include "server/store/page_token.h"
#include "server/store/proto_time.h"
#include "server/store/quota_rows.h"
#include "server/store/removals.h"
#include "server/store/store_core.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

#define MODEL_COLUMNS                                                                           \
  "project, id, job_uid, digest, size_bytes, parameter_count, metrics, schema, create_time_us," \
  " tensor_count, dataset, owner"
constexpr int kNextColumn = 12;

Model read_model(const Query& row) {
  Model m;
  m.project = row.text(0);
  m.id = row.text(1);
  m.job_uid = row.text(2);
  m.digest = row.text(3);
  m.size_bytes = row.integer(4);
  m.parameter_count = row.integer(5);
  if (!m.metrics.ParseFromString(row.text(6)) || !m.schema.ParseFromString(row.text(7)))
    throw SqliteError(SQLITE_CORRUPT, 0, "a model's blob does not parse");
  m.create_time_us = row.integer(8);
  m.tensor_count = row.integer(9);
  m.dataset = row.text(10);
  m.owner = row.text(11);
  return m;
}

std::optional<Model> find_model(Connection& db, const std::string& project, const std::string& id) {
  Query query(db, "SELECT " MODEL_COLUMNS ", tensors FROM models WHERE project = ? AND id = ?");
  query.bind(project).bind(id);
  if (!query.step()) return std::nullopt;
  Model model = read_model(query);
  v1::Model blob;
  if (!blob.ParseFromString(query.text(kNextColumn)))
    throw SqliteError(SQLITE_CORRUPT, 0, "a model's blob does not parse");
  model.tensors.assign(blob.tensors().begin(), blob.tensors().end());
  return model;
}

Result<Model> get_model(Connection& db, const std::string& project, const std::string& id) {
  if (std::optional<Model> model = find_model(db, project, id)) return std::move(*model);
  return make_error(ErrorCode::kNotFound, "MODEL_NOT_FOUND",
                    "there is no model " + quoted_value(id) + ".");
}

Status check_upload(Connection& db, const std::string& project, const std::string& sha256) {
  Query query(db, "SELECT 1 FROM uploads WHERE project = ? AND sha256 = ? AND complete = 1");
  query.bind(project).bind(sha256);
  if (query.step()) return {};
  return make_error(ErrorCode::kFailedPrecondition, "UPLOAD_INCOMPLETE",
                    "sha256: the file " + sha256.substr(0, 12) + "... was not uploaded completely");
}

Result<Model> create_model(WriteContext& context, const NewWeights& asked) {
  const auto taken = [&](const std::string& what) {
    return make_error(ErrorCode::kAlreadyExists, "MODEL_EXISTS",
                      "model_id: " + quoted_value(asked.id) + " is already the name of " + what +
                          "; choose another id");
  };
  if (std::optional<Model> same = find_model(context.db, asked.project, asked.id)) {
    const bool imports = !asked.folder_uid.empty();
    if (!same->weights_alone() && !same->imported()) return taken("a job's model");
    if (same->digest != asked.sha256 || same->imported() != imports)
      return taken("a model with other content");
    return std::move(*same);
  }
  {
    Query query(context.db, "SELECT 1 FROM jobs WHERE project = ? AND id = ?");
    query.bind(asked.project).bind(asked.id);
    if (query.step()) return taken("a job, whose model will have this name");
  }
  if (asked.folder_uid.empty()) {
    if (Status s = check_upload(context.db, asked.project, asked.sha256); !s.ok()) return s.error();
  }
  if (Status s = check_stored_bytes(context.db, asked.project, asked.owner, 0); !s.ok()) {
    return s.error();
  }
  v1::Model blob;
  blob.mutable_tensors()->Add(asked.tensors.begin(), asked.tensors.end());
  Query query(context.db,
              "INSERT INTO models (project, id, job_uid, digest, size_bytes, parameter_count,"
              " metrics, schema, create_time_us, tensor_count, tensors, owner)"
              " VALUES (?, ?, ?, ?, ?, ?, x'', ?, ?, ?, ?, ?)");
  query.bind(asked.project).bind(asked.id).bind(asked.folder_uid).bind(asked.sha256);
  query.bind(asked.size_bytes).bind(asked.parameter_count);
  query.bind_blob(asked.folder_uid.empty() ? std::string() : asked.schema.SerializeAsString());
  query.bind(context.now_us).bind(std::ssize(asked.tensors));
  query.bind_blob(blob.SerializeAsString()).bind(asked.owner).run();
  return get_model(context.db, asked.project, asked.id);
}

Result<Model> remove_model(WriteContext& context, const std::string& project,
                           const std::string& id) {
  ASSIGN_OR_RETURN(Model model, get_model(context.db, project, id));
  {
    Query query(context.db,
                "SELECT id FROM jobs INDEXED BY jobs_unfinished"
                " WHERE project = ? AND state < 5 AND initial_model = ?"
                " AND initial_model_project = '' LIMIT 1");
    query.bind(project).bind(id);
    if (query.step()) {
      return make_error(ErrorCode::kFailedPrecondition, "MODEL_IN_USE",
                        "the unfinished job " + query.text(0) + " starts from " + model.name() +
                            "; cancel the job or wait until it ends.");
    }
  }
  {
    Query query(context.db,
                "SELECT 1 FROM jobs INDEXED BY jobs_with_shared_model"
                " WHERE initial_model_project = ? AND initial_model = ? AND state < 5"
                " AND initial_model_project > '' LIMIT 1");
    query.bind(project).bind(id);
    if (query.step()) {
      return make_error(ErrorCode::kFailedPrecondition, "MODEL_IN_USE",
                        "an unfinished job of another project starts from " + model.name() +
                            "; wait until it ends.");
    }
  }
  Query query(context.db, "DELETE FROM models WHERE project = ? AND id = ?");
  query.bind(project).bind(id).run();
  // Its job names no model that is gone, nor a later one of the same name.
  Query(context.db, "UPDATE jobs SET model = '' WHERE project = ? AND id = ? AND uid = ?")
      .bind(project)
      .bind(id)
      .bind(model.job_uid)
      .run();
  if (!model.weights_alone()) note_removal(context.db, "models/" + model.job_uid);
  return model;
}

}  // namespace

v1::Model to_proto(const Model& m) {
  v1::Model out;
  out.set_name(m.name());
  // A trained model has the ID of the job that trained it.
  if (!m.weights_alone() && !m.imported()) out.set_job("projects/" + m.project + "/jobs/" + m.id);
  out.set_digest(m.digest);
  out.set_size_bytes(m.size_bytes);
  out.set_parameter_count(m.parameter_count);
  *out.mutable_metrics() = m.metrics.metrics();
  if (!m.weights_alone()) *out.mutable_schema() = m.schema;
  out.set_dataset(m.dataset);
  out.set_tensor_count(m.tensor_count);
  out.mutable_tensors()->Add(m.tensors.begin(), m.tensors.end());
  *out.mutable_create_time() = to_timestamp(m.create_time_us);
  out.set_owner(m.owner);
  return out;
}

Result<Model> ModelStore::find(const std::string& project, const std::string& id) const {
  return core_.read<Model>([&](Connection& db) { return get_model(db, project, id); });
}

Result<ModelPage> ModelStore::list(const std::string& project, int32_t page_size,
                                   const std::string& page_token) const {
  ASSIGN_OR_RETURN(const int64_t count_max, page_size_of(page_size));
  const std::string signed_query = "models " + project;
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!page_token.empty()) {
    ASSIGN_OR_RETURN(before, read_page_token(core_.page_token_key, signed_query, page_token));
  }
  return core_.read<ModelPage>([&](Connection& db) -> Result<ModelPage> {
    ModelPage page;
    Query query(
        db, "SELECT " MODEL_COLUMNS
            ", number FROM models WHERE project = ? AND number < ? ORDER BY number DESC LIMIT ?");
    query.bind(project).bind(before).bind(count_max + 1);
    int64_t last = 0;
    while (query.step()) {
      if (static_cast<int64_t>(page.models.size()) == count_max) {
        page.next_page_token = make_page_token(core_.page_token_key, signed_query, last);
        break;
      }
      last = query.integer(kNextColumn);
      page.models.push_back(read_model(query));
    }
    return page;
  });
}

void ModelStore::create(NewWeights weights, Done<Model> done) {
  core_.change<Model>([weights = std::move(weights)](
                          WriteContext& context) { return create_model(context, weights); },
                      std::move(done));
}

Result<Model> ModelStore::remove(const std::string& project, const std::string& id) {
  return core_.change_and_wait<Model>(
      [=](WriteContext& context) { return remove_model(context, project, id); },
      Urgency::kEssential);
}

}  // namespace trainyard::server
