// server/processes/ingest.h: turns uploaded files into typed datasets, each in a worker process,
// because their bytes are untrusted. Several run at a time; the others wait in order, and places
// that large ones cannot take are kept for small ones.
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
  /// `allowed_roots`: the folders of the server's own files.
  IngestRunner(Store& store, Supervisor& supervisor, Files& files, StatePaths paths,
               std::vector<std::filesystem::path> allowed_roots);
  ~IngestRunner();

  /// Ingests the sources of an INGESTING dataset into the folder of its digest; the end is stored
  /// for every dataset of that digest. `stamps`: v1::IngestTask.stamps.
  void enqueue(const Dataset& dataset, std::vector<std::string> stamps = {});
  /// Restarts what an earlier daemon did not finish.
  Status recover();
  /// Starts nothing more and stops what runs, which restarts at the next start.
  void drain();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the tasks that run
};

}  // namespace trainyard::server
