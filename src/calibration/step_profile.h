// src/calibration/step_profile.h: where the time of a training step goes, node by node.
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

/// The duration of each of the two parts: the steps that run as in a job, and those node by node.
struct ProfileOptions {
  int64_t steps_min = 3;
  int64_t steps_max = 200;
  double seconds = 3;       // between the two, this long
  int64_t trace_steps = 5;  // of which each node is kept for the trace, at most
};

struct NodeProfile {
  NodeWork work;       // of one run
  int64_t calls = 0;   // runs in one step
  double seconds = 0;  // of all runs in one step: the median of the steps
};

/// One step node by node, in seconds since the first of them began.
struct StepTrace {
  double wait_s = 0;    // for the loader, from here
  double submit_s = 0;  // the host submits, from here
  double submitted_s = 0;
  double done_s = 0;  // results are there
  double first_node_s = 0;
  std::vector<NodeRun> runs;  // in seconds since then; of StepProfile::nodes
};

struct StepProfile {
  std::string backend;
  DevicePeak peak;
  int64_t steps = 0;               // that were timed node by node
  double step_s = 0;               // as in a job: the mean, of as many or more
  double data_wait_s = 0;          // its share of waiting for the loader
  double timed_step_s = 0;         // node by node: the median
  std::vector<NodeProfile> nodes;  // in the order of work
  std::vector<StepTrace> traces;

  /// Sums over all nodes.
  double node_seconds() const;
  int64_t flops() const;
};

/// Runs steps of a session on `backend`. `next` gives a step's inputs, which stay until it is
/// called again. The weights move on. CANCELLED/STOPPED after `stop`.
Result<StepProfile> profile_steps(Session& session, ProfilingBackend& backend,
                                  const std::function<Session::StepInputs()>& next,
                                  const ProfileOptions& options, const std::stop_token& stop);

/// A job's first steps on its data. No evaluation, no checkpoint: nothing is kept.
Result<StepProfile> profile_job(const TrainJob& job, Backend& backend,
                                const ProfileOptions& options, const std::stop_token& stop);

/// One JSON object for programs: the step, what the device can do, and time, FLOPs, bytes and the
/// share of the bound (least_seconds() over the time) of every op and of every node.
std::string profile_json(const StepProfile& profile, int64_t batch_size);

/// The traced steps for chrome://tracing or Perfetto: rows for the loader, the host and the device.
std::string chrome_trace(const StepProfile& profile);

}  // namespace trainyard
