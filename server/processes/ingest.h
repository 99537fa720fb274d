// server/processes/ingest.h: converts uploaded files to typed datasets. Each ingest runs in a
// worker process, because the files are untrusted. Several run concurrently and the others wait in
// order; some slots are reserved for small ingests.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/config/paths.h"
#include "server/processes/supervisor.h"
#include "server/store/store.h"
#include "src/base/files.h"

namespace trainyard::server {

/// Thread-safe.
class IngestRunner {
 public:
  /// `allowed_roots` are the folders of the server's own files.
  IngestRunner(Store& store, Supervisor& supervisor, Files& files, StatePaths paths,
               std::vector<std::filesystem::path> allowed_roots);
  ~IngestRunner();

  /// Ingests the sources of an INGESTING dataset into the folder of its digest. The result is
  /// stored for every dataset with that digest. `stamps`: v1::IngestTask.stamps.
  void enqueue(const Dataset& dataset, std::vector<std::string> stamps = {});
  /// Restarts the ingests that an earlier daemon did not finish.
  Status recover();
  /// Starts no more ingests and stops the running ones, which the next daemon restarts.
  void drain();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also owned by the running tasks
};

}  // namespace trainyard::server
