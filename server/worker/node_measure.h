// server/worker/node_measure.h: what a worker from elsewhere says of its node, and how fast that is
// (docs/decisions/0114). It measures when its job is over and the daemon asks for it, for seconds
// that are bounded here too: it holds a place in a cluster.
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

/// Who is asked, and as whom it answers.
struct NodeMeasureOptions {
  std::string task, nonce;
  std::vector<std::string> devices;        // of the job, by this host's names
  int64_t begin_s = 0, end_time_s = 0;     // as ElsewhereOptions::end_time_s
  std::chrono::duration<double> start{0};  // from the process's begin to its assignment
};

class NodeMeasure {
 public:
  /// Reads the node, before the job takes memory there. Hears what the daemon asks for as long as
  /// it exists.
  NodeMeasure(v1::WorkerService::Stub& stub, ReportStream& stream, NodeMeasureOptions options);
  ~NodeMeasure();
  NodeMeasure(const NodeMeasure&) = delete;

  const v1::NodeFacts& facts() const { return facts_; }
  /// The job's outcome is acknowledged: measures and sends, if that was asked for and there is
  /// time. Whatever goes wrong is told on standard error alone: the job is over.
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
