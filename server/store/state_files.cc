#include "server/store/state_files.h"

#include "server/store/dataset_ref.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {

StateFiles list_state_files(Connection& db) {
  StateFiles files;
  {
    Query query(db,
                "SELECT id, uid, state, checkpoint_step, end_time_us FROM jobs ORDER BY number");
    while (query.step()) {
      files.jobs.push_back({query.text(0), query.text(1), static_cast<JobState>(query.integer(2)),
                            query.integer(3), query.integer(4)});
    }
  }
  {
    Query query(db, "SELECT id, version, digest, state, spec FROM datasets ORDER BY number");
    while (query.step()) {
      const DatasetRef ref{query.text(0), static_cast<int32_t>(query.integer(1))};
      StateFiles::Dataset& d = files.datasets.emplace_back();
      d.name = ref.text();
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
    Query query(db, "SELECT id, job_uid, digest FROM models ORDER BY number");
    while (query.step()) files.models.push_back({query.text(0), query.text(1), query.text(2)});
  }
  {
    Query query(db, "SELECT sha256, size_bytes, complete FROM uploads ORDER BY sha256");
    while (query.step()) {
      files.uploads.push_back({query.text(0), query.integer(1), query.integer(2) != 0});
    }
  }
  return files;
}

int64_t read_commit(Connection& db) {
  Query query(db, "SELECT CAST(value AS INTEGER) FROM settings WHERE key = 'commit'");
  return query.step() ? query.integer(0) : 0;
}

}  // namespace trainyard::server
