// server/worker/remote_run.h: runs a training attempt on another host than the daemon's
// (docs/decisions/remote-workers.md), in these steps:
//
//   enrol    exchanges the secret for a credential, which is kept only in memory
//   attach   gets the assignment and replaces its paths by paths on this host
//   prepare  takes the dataset from the host's cache or pulls it from the daemon; pulls the
//            checkpoint to resume from
//   meet     only if the attempt has several nodes: the daemon sends each worker the addresses of
//            the others (docs/decisions/jobs-over-several-nodes.md); only the worker of rank 0
//            reports and pushes
//   train    the same as on the daemon's host; checkpoints and the model are pushed to the daemon
//            (uplink.h)
//   outcome  is reported to the daemon
//   measure  only if the daemon requests it: measures this node's speed after the job
//            (node_measure.h)
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>

namespace trainyard {

struct RemoteOptions {
  std::string attach;  // host:port of the daemon
  std::filesystem::path certificate;
  std::string certificate_pem;  // if not empty, used instead of the file's content
  std::filesystem::path cache;
  int64_t cache_bytes = int64_t{50} << 30;  // above this size unused datasets are deleted
  std::string task;
  int64_t rank = 0;  // among the workers of the attempt's nodes
  // Time in seconds since 1970 at which the host ends this process; the worker stops before that,
  // with a checkpoint. 0: there is no such limit.
  int64_t end_time_s = 0;
  std::chrono::seconds attach_timeout{300};  // how long to wait for an unreachable daemon
};

/// Returns the process's exit status. Signals request `stop`.
int run_remote(const RemoteOptions& options, const std::string& secret, std::stop_source& stop);

/// Returns the time at which a worker that began at `begin_s` must stop because its host ends it at
/// `end_time_s`, in seconds since 1970. The rest of the time suffices to push a checkpoint, if that
/// takes as long as `last_push`, and for stop_before_s() in addition.
int64_t stop_time_s(int64_t begin_s, int64_t end_time_s, std::chrono::milliseconds last_push);

}  // namespace trainyard
