// server/processes/ingest.h: converts uploaded files to typed datasets. Each ingest runs in a
// worker process, because the files are untrusted. Several run concurrently and the others wait in
// order; some slots are reserved for small ingests, and one caller cannot use all of them. An
// ingest after which nobody has asked for a while waits behind the others, and gives way to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/config/paths.h"
#include "server/processes/supervisor.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"

namespace trainyard::server {

/// Thread-safe.
class IngestRunner {
 public:
  /// `allowed_roots` are the folders of the server's own files. An ingest is unattended if nobody
  /// has asked after it for `unattended_ms`.
  IngestRunner(Store& store, Supervisor& supervisor, Files& files, StatePaths paths,
               std::vector<std::filesystem::path> allowed_roots,
               const Clock& clock = system_clock(), int64_t unattended_ms = 60'000);
  ~IngestRunner();

  /// Ingests the sources of an INGESTING dataset into the folder of its digest. The result is
  /// stored for every dataset with that digest. `caller` is who waits for it (caller_of()).
  /// `stamps`: v1::IngestTask.stamps.
  void enqueue(const Dataset& dataset, const std::string& caller = "",
               std::vector<std::string> stamps = {});
  /// Notes that a client waits for the INGESTING dataset. If its ingest has no slot, an unattended
  /// one is stopped, and starts again later.
  void asked(const std::string& digest);
  /// Stops the ingest of a digest whose last dataset was deleted.
  void cancel(const std::string& digest);
  /// Restarts the ingests that an earlier daemon did not finish.
  Status recover();
  /// Starts no more ingests and stops the running ones, which the next daemon restarts.
  void drain();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also owned by the running tasks
};

}  // namespace trainyard::server
