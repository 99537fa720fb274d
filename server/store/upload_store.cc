#include "server/store/upload_store.h"

#include <utility>

#include "server/store/store_core.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

#define UPLOAD_COLUMNS "tenant, sha256, size_bytes, committed_size, complete, active_time_us"

Upload read_upload(const Query& row) {
  return {row.text(0),    row.text(1),         row.integer(2),
          row.integer(3), row.integer(4) != 0, row.integer(5)};
}

std::optional<Upload> find_upload(Connection& db, std::string_view tenant,
                                  std::string_view sha256) {
  Query query(db, "SELECT " UPLOAD_COLUMNS " FROM uploads WHERE tenant = ? AND sha256 = ?");
  query.bind(tenant).bind(sha256);
  if (!query.step()) return std::nullopt;
  return read_upload(query);
}

Result<Upload> get_upload(Connection& db, const std::string& tenant, const std::string& sha256) {
  if (std::optional<Upload> upload = find_upload(db, tenant, sha256)) return std::move(*upload);
  return make_error(ErrorCode::kNotFound, "UPLOAD_NOT_FOUND",
                    "name: the upload of " + quoted_value(sha256) +
                        " has expired or was not begun; begin it again.");
}

Result<Upload> begin_upload(WriteContext& context, const std::string& tenant,
                            const std::string& sha256, int64_t size_bytes) {
  if (std::optional<Upload> upload = find_upload(context.db, tenant, sha256)) {
    if (upload->size_bytes != size_bytes)
      return make_error(ErrorCode::kFailedPrecondition, "UPLOAD_SIZE_CONFLICT",
                        "size_bytes: " + std::to_string(size_bytes) +
                            " differs from the size declared before, " +
                            std::to_string(upload->size_bytes) + ".");
    return std::move(*upload);
  }
  Query query(context.db,
              "INSERT INTO uploads (tenant, sha256, size_bytes, committed_size, complete,"
              " active_time_us) VALUES (?, ?, ?, 0, 0, ?)");
  query.bind(tenant).bind(sha256).bind(size_bytes).bind(context.now_us).run();
  return Upload{tenant, sha256, size_bytes, 0, false, context.now_us};
}

Result<Upload> advance_upload(WriteContext& context, const std::string& tenant,
                              const std::string& sha256, int64_t committed_size, bool complete) {
  ASSIGN_OR_RETURN(Upload upload, get_upload(context.db, tenant, sha256));
  if (upload.complete) return upload;
  if (complete) committed_size = upload.size_bytes;
  if (committed_size > upload.size_bytes)
    return make_error(ErrorCode::kResourceExhausted, "UPLOAD_TOO_LARGE",
                      "data: " + std::to_string(committed_size) + " bytes are more than the " +
                          std::to_string(upload.size_bytes) + " that were declared.");
  upload.committed_size = std::max(upload.committed_size, committed_size);
  upload.complete = complete;
  upload.active_time_us = context.now_us;
  Query query(context.db,
              "UPDATE uploads SET committed_size = ?, complete = ?, active_time_us = ?"
              " WHERE tenant = ? AND sha256 = ?");
  query.bind(upload.committed_size).bind(int64_t{complete}).bind(upload.active_time_us);
  query.bind(tenant).bind(sha256).run();
  return upload;
}

}  // namespace

void UploadStore::begin(std::string tenant, std::string sha256, int64_t size_bytes,
                        Done<Upload> done) {
  core_.change<Upload>(
      [=, tenant = std::move(tenant), sha256 = std::move(sha256)](WriteContext& context) {
        return begin_upload(context, tenant, sha256, size_bytes);
      },
      std::move(done));
}

void UploadStore::advance(std::string tenant, std::string sha256, int64_t committed_size,
                          Done<Upload> done) {
  core_.change<Upload>(
      [=, tenant = std::move(tenant), sha256 = std::move(sha256)](WriteContext& context) {
        return advance_upload(context, tenant, sha256, committed_size, false);
      },
      std::move(done));
}

void UploadStore::complete(std::string tenant, std::string sha256, Done<Upload> done) {
  core_.change<Upload>(
      [tenant = std::move(tenant), sha256 = std::move(sha256)](WriteContext& context) {
        return advance_upload(context, tenant, sha256, 0, true);
      },
      std::move(done));
}

void UploadStore::remove(std::string tenant, std::string sha256, Done<void> done) {
  core_.change<void>(
      [tenant = std::move(tenant), sha256 = std::move(sha256)](WriteContext& context) -> Status {
        Query query(context.db, "DELETE FROM uploads WHERE tenant = ? AND sha256 = ?");
        query.bind(tenant).bind(sha256).run();
        return {};
      },
      std::move(done), Urgency::kEssential);
}

void UploadStore::remove_unused(std::string tenant, std::string sha256, Done<bool> done) {
  core_.change<bool>(
      [tenant = std::move(tenant),
       sha256 = std::move(sha256)](WriteContext& context) -> Result<bool> {
        Query used(context.db, "SELECT 1 FROM models WHERE job_uid = '' AND digest = ? LIMIT 1");
        used.bind(sha256);
        if (used.step()) return false;
        Query query(context.db, "DELETE FROM uploads WHERE tenant = ? AND sha256 = ?");
        query.bind(tenant).bind(sha256).run();
        return true;
      },
      std::move(done), Urgency::kEssential);
}

Result<Upload> UploadStore::find(const std::string& tenant, const std::string& sha256) const {
  return core_.read<Upload>([&](Connection& db) -> Result<Upload> {
    if (std::optional<Upload> upload = find_upload(db, tenant, sha256)) return std::move(*upload);
    return Upload{tenant, sha256, 0, 0, false, 0};
  });
}

Result<std::vector<Upload>> UploadStore::list_idle(int64_t before_us) const {
  return core_.read<std::vector<Upload>>([&](Connection& db) -> Result<std::vector<Upload>> {
    Query query(db,
                "SELECT " UPLOAD_COLUMNS " FROM uploads WHERE complete = 0 AND active_time_us < ?");
    query.bind(before_us);
    std::vector<Upload> uploads;
    while (query.step()) uploads.push_back(read_upload(query));
    return uploads;
  });
}

Result<Upload> UploadStore::begin(const std::string& tenant, const std::string& sha256,
                                  int64_t size_bytes) {
  return wait_for<Upload>(
      core_, [&](Done<Upload> done) { begin(tenant, sha256, size_bytes, std::move(done)); });
}
Result<Upload> UploadStore::advance(const std::string& tenant, const std::string& sha256,
                                    int64_t committed_size) {
  return wait_for<Upload>(
      core_, [&](Done<Upload> done) { advance(tenant, sha256, committed_size, std::move(done)); });
}
Result<Upload> UploadStore::complete(const std::string& tenant, const std::string& sha256) {
  return wait_for<Upload>(core_,
                          [&](Done<Upload> done) { complete(tenant, sha256, std::move(done)); });
}
Result<bool> UploadStore::remove_unused(const std::string& tenant, const std::string& sha256) {
  return wait_for<bool>(core_,
                        [&](Done<bool> done) { remove_unused(tenant, sha256, std::move(done)); });
}
Status UploadStore::remove(const std::string& tenant, const std::string& sha256) {
  return wait_for<void>(core_, [&](Done<void> done) { remove(tenant, sha256, std::move(done)); });
}

}  // namespace trainyard::server
