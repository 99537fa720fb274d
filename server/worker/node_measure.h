// server/worker/node_measure.h: reads the facts about a remote worker's node and measures its speed
// (docs/decisions/measuring-cluster-nodes.md). The worker measures after its job, if the daemon
// requests it. The time is limited here too, because the worker occupies a cluster allocation.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "server/worker/report_stream.h"
#include "src/base/mutex.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {

/// Identifies the worker, its devices and its time limit.
struct NodeMeasureOptions {
  std::string task, nonce;
  std::vector<std::string> devices;        // the job's devices, by their names on this host
  int64_t begin_s = 0, end_time_s = 0;     // seconds since 1970, as in RemoteOptions
  std::chrono::duration<double> start{0};  // from the start of the process to its assignment
};

class NodeMeasure {
 public:
  /// Reads the node's facts, before the job allocates memory there. Receives the daemon's requests
  /// from `stream` until it is destroyed.
  NodeMeasure(v1::WorkerService::Stub& stub, ReportStream& stream, NodeMeasureOptions options);
  ~NodeMeasure();
  NodeMeasure(const NodeMeasure&) = delete;

  const v1::NodeFacts& facts() const { return facts_; }
  /// Measures and sends the rates if the daemon requested them and there is time. The worker calls
  /// this after the job's outcome is acknowledged; errors are only written to standard error, since
  /// the job is over.
  void run(const std::stop_token& stop) const;

 private:
  Result<std::string> measure(v1::CalibrateTask task, const std::stop_token& stop) const;

  v1::WorkerService::Stub& stub_;
  ReportStream& stream_;
  const NodeMeasureOptions options_;
  const v1::NodeFacts facts_;
  mutable Mutex mu_;
  std::optional<v1::CalibrateTask> asked_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard
