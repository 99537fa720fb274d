// server/supervisor/source_digest.h: what the server's own files and folders hold, as digests: in a
// worker process, because it takes as long as reading them does.
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

  /// By source of `spec`: its digest; "" for one without a server path. `done` is called once. What
  /// the worker refuses (SERVER_PATH_..., SOURCE_CHANGED); RESOURCE_EXHAUSTED/DIGEST_BUSY;
  /// DEADLINE_EXCEEDED/DIGEST_TIMEOUT; INTERNAL/WORKER_LOST.
  void run(const v1::DatasetSpec& spec, Done<std::vector<std::string>> done);
  void drain() { errands_.drain(); }

 private:
  const std::vector<std::filesystem::path> allowed_roots_;
  ErrandRunner errands_;
};

}  // namespace trainyard::server
