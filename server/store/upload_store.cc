#include "server/store/upload_store.h"

#include <set>
#include <utility>

#include "server/store/quota_rows.h"
#include "server/store/store_core.h"
#include "src/base/text.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {
namespace {

#define UPLOAD_COLUMNS "project, sha256, size_bytes, committed_size, complete, active_time_us"

Upload read_upload(const Query& row) {
  return {row.text(0),    row.text(1),         row.integer(2),
          row.integer(3), row.integer(4) != 0, row.integer(5)};
}

std::optional<Upload> find_upload(Connection& db, const UploadKey& key) {
  Query query(db, "SELECT " UPLOAD_COLUMNS
                  " FROM uploads WHERE project = ? AND sha256 = ? AND size_bytes = ?");
  query.bind(key.project).bind(key.sha256).bind(key.size_bytes);
  if (!query.step()) return std::nullopt;
  return read_upload(query);
}

Result<Upload> get_upload(Connection& db, const UploadKey& key) {
  if (std::optional<Upload> upload = find_upload(db, key)) return std::move(*upload);
  return make_error(ErrorCode::kNotFound, "UPLOAD_NOT_FOUND",
                    "the upload of " + quoted_value(key.sha256) +
                        " has expired or was not started; start it again.");
}

Result<Upload> begin_upload(WriteContext& context, const UploadKey& key) {
  if (std::optional<Upload> upload = find_upload(context.db, key)) return std::move(*upload);
  if (Status s = check_stored_bytes(context.db, key.project, /*person=*/"", key.size_bytes);
      !s.ok()) {
    return s.error();
  }
  Query query(context.db,
              "INSERT INTO uploads (project, sha256, size_bytes, committed_size, complete,"
              " active_time_us) VALUES (?, ?, ?, 0, 0, ?)");
  query.bind(key.project).bind(key.sha256).bind(key.size_bytes).bind(context.now_us).run();
  return Upload{key.project, key.sha256, key.size_bytes, 0, false, context.now_us};
}

Result<Upload> advance_upload(WriteContext& context, const UploadKey& key, int64_t committed_size,
                              bool complete) {
  ASSIGN_OR_RETURN(Upload upload, get_upload(context.db, key));
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
              " WHERE project = ? AND sha256 = ? AND size_bytes = ?");
  query.bind(upload.committed_size).bind(int64_t{complete}).bind(upload.active_time_us);
  query.bind(key.project).bind(key.sha256).bind(key.size_bytes).run();
  return upload;
}

/// A project and a digest.
using Content = std::pair<std::string, std::string>;

/// Returns the uploads that datasets and models of uploaded weights of their project refer to.
Result<std::set<Content>> used_content(Connection& db) {
  std::set<Content> used;
  Query models(db, "SELECT project, digest FROM models WHERE job_uid = ''");
  while (models.step()) used.insert({models.text(0), models.text(1)});
  Query datasets(db, "SELECT project, spec FROM datasets");
  while (datasets.step()) {
    v1::DatasetSpec spec;
    if (!spec.ParseFromString(datasets.text(1))) {
      return make_error(ErrorCode::kDataLoss, "STORE_DAMAGED", "a dataset's spec cannot be read");
    }
    const std::string project = datasets.text(0);
    for (const v1::DatasetSource& source : spec.sources()) {
      used.insert({project, source.sha256()});
    }
  }
  return used;
}

/// Returns whether a project has a complete upload of this content.
bool has_complete(Connection& db, const std::string& sha256) {
  // The index of the table begins with the project, so this asks each project that has uploads.
  std::string project;
  for (;;) {
    {
      Query next(db, "SELECT min(project) FROM uploads WHERE project > ?");
      next.bind(project);
      if (!next.step() || next.bytes(0).empty()) return false;
      project = next.text(0);
    }
    Query query(db, "SELECT 1 FROM uploads WHERE project = ? AND sha256 = ? AND complete = 1");
    query.bind(project).bind(sha256);
    if (query.step()) return true;
  }
}

}  // namespace

Result<Upload> UploadStore::begin(const UploadKey& key) {
  return core_.change_and_wait<Upload>(
      [key](WriteContext& context) { return begin_upload(context, key); });
}

Result<Upload> UploadStore::advance(const UploadKey& key, int64_t committed_size) {
  return core_.change_and_wait<Upload>([key, committed_size](WriteContext& context) {
    return advance_upload(context, key, committed_size, false);
  });
}

Result<Upload> UploadStore::complete(const UploadKey& key) {
  return core_.change_and_wait<Upload>(
      [key](WriteContext& context) { return advance_upload(context, key, 0, true); });
}

Status UploadStore::remove(const UploadKey& key) {
  return core_.change_and_wait<void>(
      [key](WriteContext& context) -> Status {
        Query query(context.db,
                    "DELETE FROM uploads WHERE project = ? AND sha256 = ? AND size_bytes = ?");
        query.bind(key.project).bind(key.sha256).bind(key.size_bytes).run();
        return {};
      },
      Urgency::kEssential);
}

Result<std::vector<std::string>> UploadStore::remove_unused(const std::vector<UploadKey>& keys) {
  return core_.change_and_wait<std::vector<std::string>>(
      [=](WriteContext& context) -> Result<std::vector<std::string>> {
        ASSIGN_OR_RETURN(const std::set<Content> used, used_content(context.db));
        std::set<std::string> digests;
        for (const UploadKey& key : keys) {
          if (used.contains({key.project, key.sha256})) continue;
          Query query(context.db,
                      "DELETE FROM uploads WHERE project = ? AND sha256 = ? AND complete = 1");
          query.bind(key.project).bind(key.sha256).run();
          digests.insert(key.sha256);
        }
        std::vector<std::string> gone;
        for (const std::string& sha256 : digests) {
          if (!has_complete(context.db, sha256)) gone.push_back(sha256);
        }
        return gone;
      },
      Urgency::kEssential);
}

Result<Upload> UploadStore::find(const std::string& project, const std::string& sha256,
                                 int64_t size_bytes) const {
  return core_.read<Upload>([&](Connection& db) -> Result<Upload> {
    Query query(db, "SELECT " UPLOAD_COLUMNS
                    " FROM uploads WHERE project = ? AND sha256 = ?"
                    " AND (complete = 1 OR ? IN (0, size_bytes))"
                    " ORDER BY complete DESC, committed_size DESC LIMIT 1");
    query.bind(project).bind(sha256).bind(size_bytes);
    if (query.step()) return read_upload(query);
    return Upload{project, sha256, 0, 0, false, 0};
  });
}

Result<bool> UploadStore::has_size(const std::string& project, int64_t size_bytes) const {
  return core_.read<bool>([&](Connection& db) -> Result<bool> {
    Query query(db, "SELECT 1 FROM uploads WHERE project = ? AND size_bytes = ? AND complete = 1");
    query.bind(project).bind(size_bytes);
    return query.step();
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

Result<UnusedUploads> UploadStore::list_unused(int64_t before_us) const {
  return core_.read<UnusedUploads>([&](Connection& db) -> Result<UnusedUploads> {
    ASSIGN_OR_RETURN(const std::set<Content> used, used_content(db));
    Query query(db, "SELECT " UPLOAD_COLUMNS " FROM uploads WHERE complete = 1");
    UnusedUploads unused;
    std::set<std::string> needed;
    while (query.step()) {
      Upload upload = read_upload(query);
      if (upload.active_time_us < before_us && !used.contains({upload.project, upload.sha256})) {
        unused.uploads.push_back(std::move(upload));
      } else {
        needed.insert(std::move(upload.sha256));
      }
    }
    for (const Upload& upload : unused.uploads) {
      if (!needed.contains(upload.sha256)) unused.files.insert(upload.sha256);
    }
    return unused;
  });
}

}  // namespace trainyard::server
