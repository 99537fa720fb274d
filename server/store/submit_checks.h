// server/store/submit_checks.h: what the transaction that stores new jobs checks, alike for one job
// and for an array of them. On the writer's connection; throws SqliteError.
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

/// RESOURCE_EXHAUSTED/QUOTA_QUEUED_JOBS if `count` more would be too many.
Status check_quota(Connection& db, const std::string& project, int64_t queued_jobs_max,
                   int64_t count = 1);
/// NOT_FOUND/DATASET_NOT_FOUND, FAILED_PRECONDITION/DATASET_NOT_READY.
Status check_dataset(Connection& db, const std::string& project, const DatasetRef& dataset);
/// NOT_FOUND/MODEL_NOT_FOUND, unless one of the awaited jobs will make it.
Status check_initial_model(Connection& db, const std::string& project, const std::string& model_id,
                           const std::vector<Awaited>& awaited);

/// Forgets request IDs that are too old to be kept.
void forget_old_requests(Connection& db, int64_t now_us);
/// The uid of what a request made that was seen before. INVALID_ARGUMENT/REQUEST_ID_REUSED.
Result<std::optional<std::string>> find_request_uid(Connection& db, const RequestId& request);
/// Keeps what a request has made; without a request ID nothing.
void keep_request(Connection& db, const RequestId& request, std::string_view uid, int64_t now_us);

}  // namespace trainyard::server
