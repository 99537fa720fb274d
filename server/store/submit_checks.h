// server/store/submit_checks.h: the checks of the transaction that stores a new job or a new array
// of jobs. All functions run on the writer's connection and throw SqliteError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/dependencies.h"
#include "server/store/job.h"
#include "server/store/sqlite.h"

namespace trainyard::server {

bool job_id_taken(Connection& db, std::string_view project, std::string_view id);
/// Returns what has the name `id`, which is taken, and how the name becomes free: "is already the
/// name of a model, ...".
std::string who_has_job_id(Connection& db, std::string_view project, std::string_view id);

/// Returns the first free ID of stem1, stem2, ...; a random one if a thousand are taken.
std::string free_job_id(Connection& db, std::string_view project, std::string_view stem,
                        int64_t now_us);
/// Returns a free ID that is like `id`, which is taken: "iris-2" for "iris".
std::string similar_free_job_id(Connection& db, std::string_view project, std::string_view id,
                                int64_t now_us);

/// Error: RESOURCE_EXHAUSTED/QUEUED_JOBS_QUOTA_EXCEEDED if `count` more queued jobs would exceed
/// the quota.
Status check_quota(Connection& db, const std::string& project, int64_t queued_jobs_max,
                   int64_t count = 1);
/// Errors: NOT_FOUND/DATASET_NOT_FOUND, FAILED_PRECONDITION/DATASET_NOT_READY.
/// For this and the next function: `project` is the job's; the dataset or model is of `of_project`,
/// or if that is empty of the job's project.
Status check_dataset(Connection& db, const std::string& project, const std::string& of_project,
                     const DatasetRef& dataset);
/// Error: NOT_FOUND/MODEL_NOT_FOUND if the model does not exist and no awaited job will create it.
Status check_initial_model(Connection& db, const std::string& project,
                           const std::string& of_project, const std::string& model_id,
                           const std::vector<Awaited>& awaited);

/// Deletes request IDs that are older than a day.
void forget_old_requests(Connection& db, int64_t now_us);
/// Returns the uid of the job or array that an earlier request with this ID created; nothing for a
/// new ID. Error: INVALID_ARGUMENT/REQUEST_ID_REUSED.
Result<std::optional<std::string>> find_request_uid(Connection& db, const RequestId& request);
/// Stores the uid of the job or array that the request created; does nothing if the request has no
/// ID.
void keep_request(Connection& db, const RequestId& request, std::string_view uid, int64_t now_us);

}  // namespace trainyard::server
