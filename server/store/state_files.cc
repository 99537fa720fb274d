#include "server/store/state_files.h"

#include "server/store/dataset_ref.h"
#include "src/base/resource_id.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {
namespace {

std::string user_name_of(const std::string& project, const char* collection,
                         const std::string& id) {
  if (project == kDefaultProject) return id;
  return "projects/" + project + "/" + collection + "/" + id;
}

}  // namespace

StateFiles list_state_files(Connection& db) {
  StateFiles files;
  {
    Query query(db,
                "SELECT id, uid, state, checkpoint_step, end_time_us, project FROM jobs"
                " ORDER BY number");
    while (query.step()) {
      files.jobs.push_back({user_name_of(query.text(5), "jobs", query.text(0)), query.text(5),
                            query.text(0), query.text(1), static_cast<JobState>(query.integer(2)),
                            query.integer(3), query.integer(4)});
    }
  }
  {
    Query query(db,
                "SELECT id, version, digest, state, spec, project FROM datasets ORDER BY number");
    while (query.step()) {
      const DatasetRef ref{query.text(0), static_cast<int32_t>(query.integer(1))};
      StateFiles::Dataset& d = files.datasets.emplace_back();
      d.name = user_name_of(query.text(5), "datasets", ref.text());
      d.digest = query.text(2);
      d.ready = query.integer(3) == v1::Dataset::READY;
      v1::DatasetSpec spec;
      (void)spec.ParseFromString(query.text(4));
      for (const v1::DatasetSource& source : spec.sources()) {
        if (source.server_path().empty()) d.sources.push_back(source.sha256());
      }
    }
  }
  {
    Query query(db, "SELECT id, job_uid, digest, project FROM models ORDER BY number");
    while (query.step()) {
      files.models.push_back(
          {user_name_of(query.text(3), "models", query.text(0)), query.text(1), query.text(2)});
    }
  }
  {
    Query query(db,
                "SELECT sha256, size_bytes, complete, project FROM uploads"
                " ORDER BY sha256, complete DESC");
    while (query.step()) {
      const bool complete = query.integer(2) != 0;
      const bool known = !files.uploads.empty() && files.uploads.back().complete &&
                         files.uploads.back().sha256 == query.bytes(0);
      if (complete && known) continue;
      files.uploads.push_back({query.text(0), query.integer(1), complete, query.text(3)});
    }
  }
  return files;
}

int64_t read_commit(Connection& db) {
  Query query(db, "SELECT CAST(value AS INTEGER) FROM settings WHERE key = 'commit'");
  return query.step() ? query.integer(0) : 0;
}

}  // namespace trainyard::server
