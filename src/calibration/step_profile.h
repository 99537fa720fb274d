// src/calibration/step_profile.h: measures where the time of a training step goes, node by node.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/job/train_job.h"
#include "src/runtime/profiling_backend.h"
#include "src/train/session.h"

namespace trainyard {

/// Limits for each of the two parts: first steps that run as in a job, then steps timed node by
/// node.
struct ProfileOptions {
  int64_t steps_min = 3;
  int64_t steps_max = 200;
  double seconds = 3;       // seconds per part, within the two limits
  int64_t trace_steps = 5;  // number of steps, at most, whose nodes are kept for the trace
};

struct NodeProfile {
  NodeWork work;       // work of one run
  int64_t calls = 0;   // runs in one step
  double seconds = 0;  // of all runs in one step; the median over the steps
};

/// One step timed node by node. Times are in seconds since the first such step began.
struct StepTrace {
  double wait_s = 0;    // start of the wait for the loader
  double submit_s = 0;  // the host starts to submit the step
  double submitted_s = 0;
  double done_s = 0;  // the results have arrived
  double first_node_s = 0;
  std::vector<NodeRun> runs;  // times relative to first_node_s; indices into StepProfile::nodes
};

struct StepProfile {
  std::string backend;
  DevicePeak peak;
  int64_t steps = 0;               // number of steps that were timed node by node
  double step_s = 0;               // mean of the steps that ran as in a job
  double data_wait_s = 0;          // part of step_s spent waiting for the loader
  double timed_step_s = 0;         // median of the steps that were timed node by node
  std::vector<NodeProfile> nodes;  // in order of execution
  std::vector<StepTrace> traces;

  /// Returns the sum over all nodes.
  double node_seconds() const;
  int64_t flops() const;
};

/// Runs steps of `session`, which must run on `backend`. `next` returns a step's inputs, which must
/// stay valid until `next` is called again. The session's weights change. CANCELLED/STOPPED after
/// `stop`.
Result<StepProfile> profile_steps(Session& session, ProfilingBackend& backend,
                                  const std::function<Session::StepInputs()>& next,
                                  const ProfileOptions& options, const std::stop_token& stop);

/// Profiles a job's first steps on its data, without evaluation or checkpoints; nothing is written.
Result<StepProfile> profile_job(const TrainJob& job, Backend& backend,
                                const ProfileOptions& options, const std::stop_token& stop);

/// Returns one machine-readable JSON object: the step, the device's peak rates, and for every op
/// and node its time, FLOPs, bytes and share of the bound (least_seconds() divided by the time).
std::string profile_json(const StepProfile& profile, int64_t batch_size);

/// Returns the traced steps as JSON for chrome://tracing or Perfetto, in rows for loader, host and
/// device.
std::string chrome_trace(const StepProfile& profile);

}  // namespace trainyard
