#include "server/store/submit_checks.h"

#include <algorithm>

#include "server/store/random_id.h"
#include "src/base/resource_id.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr int64_t kRequestIdKeptUs = int64_t{24} * 3600 * 1'000'000;

bool has_row(Connection& db, const char* sql, std::string_view a, std::string_view b) {
  Query query(db, sql);
  query.bind(a).bind(b);
  return query.step();
}

/// Returns the ID, or for another project than the job's the full name.
std::string shown_name(const std::string& of_project, const char* collection,
                       const std::string& id) {
  if (of_project.empty()) return id;
  return "projects/" + of_project + "/" + collection + "/" + id;
}

}  // namespace

bool job_id_taken(Connection& db, std::string_view project, std::string_view id) {
  return has_row(db, "SELECT 1 FROM jobs WHERE project = ? AND id = ?", project, id) ||
         has_row(db, "SELECT 1 FROM models WHERE project = ? AND id = ?", project, id);
}

std::string who_has_job_id(Connection& db, std::string_view project, std::string_view id) {
  if (has_row(db, "SELECT 1 FROM jobs WHERE project = ? AND id = ?", project, id)) {
    return "is already the name of a job";
  }
  return "is already the name of a model, which stayed when its job was deleted, or was uploaded; "
         "the job's own model could not have this name ('trainyard model delete " +
         std::string(id) + "' frees it)";
}

std::string free_job_id(Connection& db, std::string_view project, std::string_view stem,
                        int64_t now_us) {
  constexpr int kTriesMax = 1000;
  constexpr size_t kDigitsMax = 4;
  const std::string begin(stem.substr(0, kResourceIdCharsMax - kDigitsMax));
  for (int number = 1; number <= kTriesMax; ++number) {
    std::string id = begin + std::to_string(number);
    if (!job_id_taken(db, project, id)) return id;
  }
  std::string id;
  do id = random_job_id(now_us);
  while (job_id_taken(db, project, id));
  return id;
}

std::string similar_free_job_id(Connection& db, std::string_view project, std::string_view id,
                                int64_t now_us) {
  const size_t digits = id.find_last_not_of("0123456789") + 1;
  const bool has_number = digits < id.size() && digits > 0 && id[digits - 1] == '-';
  const std::string stem = std::string(id.substr(0, has_number ? digits - 1 : id.size()));
  return free_job_id(db, project, stem + "-", now_us);
}

void forget_old_requests(Connection& db, int64_t now_us) {
  Query(db, "DELETE FROM request_ids WHERE time_us < ?").bind(now_us - kRequestIdKeptUs).run();
}

Result<std::optional<std::string>> find_request_uid(Connection& db, const RequestId& request) {
  Query query(db, "SELECT digest, job_uid FROM request_ids WHERE project = ? AND request_id = ?");
  query.bind(request.project).bind(request.id);
  if (!query.step()) return std::optional<std::string>();
  std::string uid = query.text(1);
  if (query.bytes(0) != request.digest) {
    // Nothing of the first request is told, which may be another person's.
    return field_error(
        "REQUEST_ID_REUSED", "request_id",
        quoted_value(request.id) + " was used for another request; choose a new one");
  }
  return std::optional<std::string>(std::move(uid));
}

void keep_request(Connection& db, const RequestId& request, std::string_view uid, int64_t now_us) {
  if (request.id.empty()) return;
  Query query(db,
              "INSERT INTO request_ids (project, request_id, digest, job_uid, time_us)"
              " VALUES (?, ?, ?, ?, ?)");
  query.bind(request.project).bind(request.id).bind(request.digest).bind(uid).bind(now_us).run();
}

Status check_quota(Connection& db, const std::string& project, int64_t queued_jobs_max,
                   int64_t count) {
  Query query(db, "SELECT queued FROM projects WHERE name = ?");
  query.bind(project);
  const int64_t queued = query.step() ? query.integer(0) : 0;
  if (queued + count <= queued_jobs_max) return {};
  Error e = make_error(ErrorCode::kResourceExhausted, "QUEUED_JOBS_QUOTA_EXCEEDED",
                       "projects/" + project + " has " + std::to_string(queued) +
                           " queued jobs, of at most " + std::to_string(queued_jobs_max) +
                           (count > 1 ? ", and the array would add " + std::to_string(count) : "") +
                           "; wait for some to start, or cancel some.");
  e.metadata["limit"] = std::to_string(queued_jobs_max);
  return e;
}

Status check_dataset(Connection& db, const std::string& project, const std::string& of_project,
                     const DatasetRef& dataset) {
  const std::string name = quoted_value(shown_name(of_project, "datasets", dataset.text()));
  Query query(db,
              "SELECT state, message FROM datasets WHERE project = ? AND id = ? AND version = ?");
  query.bind(of_project.empty() ? project : of_project);
  query.bind(dataset.id).bind(int64_t{dataset.version});
  if (!query.step())
    return make_error(ErrorCode::kNotFound, "DATASET_NOT_FOUND",
                      "spec.dataset.name: there is no dataset " + name + "; upload it first.");
  switch (static_cast<v1::Dataset::State>(query.integer(0))) {
    case v1::Dataset::READY:
      return {};
    case v1::Dataset::FAILED:
      return make_error(
          ErrorCode::kFailedPrecondition, "DATASET_NOT_READY",
          "spec.dataset.name: dataset " + name + " could not be read: " + query.text(1));
    default:
      return make_error(ErrorCode::kFailedPrecondition, "DATASET_NOT_READY",
                        "spec.dataset.name: dataset " + name +
                            " is still being read; try again when it is READY.");
  }
}

Status check_initial_model(Connection& db, const std::string& project,
                           const std::string& of_project, const std::string& model_id,
                           const std::vector<Awaited>& awaited) {
  const auto makes_the_model = [&](const Awaited& a) {
    return of_project.empty() && a.id == model_id && !a.any_end;
  };
  if (model_id.empty() || std::ranges::any_of(awaited, makes_the_model) ||
      has_row(db, "SELECT 1 FROM models WHERE project = ? AND id = ?",
              of_project.empty() ? project : of_project, model_id)) {
    return {};
  }
  return make_error(ErrorCode::kNotFound, "MODEL_NOT_FOUND",
                    "spec.recipe.initial_weights: there is no model " +
                        quoted_value(shown_name(of_project, "models", model_id)) + " any more.");
}

}  // namespace trainyard::server
