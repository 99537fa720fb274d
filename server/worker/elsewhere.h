// server/worker/elsewhere.h: a training worker on another host than its daemon
// (docs/decisions/0102).
//
//   enrol    the secret buys a credential, which is in memory alone
//   attach   the assignment; its paths become those of this host
//   prepare  the dataset from the host's cache or from the daemon, the checkpoint to resume from
//   meet     where the attempt has several nodes: the daemon tells each worker where the others are
//            (docs/decisions/0105); all but that of rank 0 report nothing and push nothing
//   train    as on the daemon's host; checkpoints and the model go to the daemon (uplink.h)
//   outcome
//   measure  where the daemon asks for it: what this node can do, once the job is over
//            (node_measure.h)
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>

namespace trainyard {

struct ElsewhereOptions {
  std::string attach;  // host:port of the daemon
  std::filesystem::path certificate;
  std::string certificate_pem;  // in place of the file's, if it is not empty
  std::filesystem::path cache;
  int64_t cache_bytes = int64_t{50} << 30;  // of datasets that nobody uses just now
  std::string task;
  int64_t rank = 0;  // among the workers of the attempt's nodes
  // Seconds since 1970 at which the host ends this process: the worker stops before, with a
  // checkpoint. 0: it does not.
  int64_t end_time_s = 0;
  std::chrono::seconds attach_timeout{300};  // for a daemon that is away
};

/// Returns the process's exit status. `stop` is what signals request.
int run_elsewhere(const ElsewhereOptions& options, const std::string& secret,
                  std::stop_source& stop);

/// When a worker that began at `begin_s` stops because its host ends it at `end_time_s`: time for a
/// checkpoint, of which the last one took so long, and a minute beside, or of a short time a tenth.
int64_t stop_time_s(int64_t begin_s, int64_t end_time_s, std::chrono::milliseconds last_push);

}  // namespace trainyard
