// server/supervisor/source_digest.h: digests of the server's own files and folders, computed in a
// worker process because reading them takes long.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "server/supervisor/errand.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {

/// Thread-safe.
class SourceDigestRunner {
 public:
  SourceDigestRunner(Supervisor& supervisor, StatePaths paths,
                     std::vector<std::filesystem::path> allowed_roots);

  /// By source of `spec`: its digest; "" for one without a server path. `done` is called once.
  /// Errors: the worker's (SERVER_PATH_..., SOURCE_CHANGED); RESOURCE_EXHAUSTED/DIGEST_BUSY;
  /// DEADLINE_EXCEEDED/DIGEST_TIMEOUT; INTERNAL/WORKER_LOST.
  void run(const v1::DatasetSpec& spec, Done<std::vector<std::string>> done);
  void drain() { errands_.drain(); }

 private:
  const std::vector<std::filesystem::path> allowed_roots_;
  ErrandRunner errands_;
};

}  // namespace trainyard::server
