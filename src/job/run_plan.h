// src/job/run_plan.h: what is known of a run before its first step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/forecast/forecast.h"
#include "src/plan/program.h"

namespace trainyard {

/// What became of `initial_weights`. By tensor name, each in the model's order.
struct InitialWeightsReport {
  std::string source;
  std::vector<std::string> taken;
  std::vector<std::string> left_out;    // by the patterns
  std::vector<std::string> missing;     // in the source
  std::vector<std::string> mismatched;  // "fc2.weight [10, 84] where [3, 84] is needed"
  std::vector<std::string> unused;      // of the source
  /// One line per kind that is not empty.
  std::string text() const;
};

/// How much work a kill costs at most: that since the newest checkpoint began. One of the two is 0.
struct CheckpointPlan {
  int64_t size_bytes = 0;      // of a checkpoint's tensors, at most
  int64_t lost_steps_max = 0;  // of a recipe that says at which steps
  double lost_seconds_max = 0;
};

/// Exchanges of one kind between the devices of a job, in one step or for one batch of an
/// evaluation.
struct PlannedExchange {
  std::string kind;  // "all_reduce", "reduce_scatter", "all_gather", "gather_rows", "scatter_rows"
  std::string axis;  // along which each device has a part: "rows", "elements"; empty: all have all
  int64_t count = 0;
  int64_t bytes = 0;         // of the tensors that are exchanged
  int64_t sent_bytes = 0;    // by each device, at least
  int64_t beside_count = 0;  // of `count`: those beside which a device goes on computing
};

/// Two layers whose hidden units are split over the devices (src/parallel/split_mlp.h).
struct PlannedPair {
  std::string first, second;    // by name
  int64_t units = 0;            // of all devices
  int64_t saved_bytes = 0;      // that a device does not hold of weights, state, averages and sums
  int64_t exchanged_bytes = 0;  // of the tensors that are exchanged for it in a step
};

/// What is known before the first step.
struct RunPlan {
  int64_t parameter_count = 0;          // of the resulting model
  int64_t trained_parameter_count = 0;  // that the optimizer changes
  int64_t steps_total = 0;
  int64_t steps_per_epoch = 0;
  int64_t first_step = 0;  // > 0 after a resume
  int64_t train_rows = 0, validation_rows = 0, test_rows = 0;
  int64_t ranks = 1;       // devices that train it together
  MemoryBreakdown memory;  // of each of them
  // Beside that, of each GPU: the training rows (src/planning/held_plan.h). 0 on the CPU, which
  // holds none; who plans for it says so.
  int64_t dataset_bytes = 0;
  // Beside that, of the host: the copy that a checkpoint is written from, and the loader's batches.
  int64_t host_bytes = 0;
  // In the order in which they begin; none of one device. Of a step, and of a batch that is
  // evaluated.
  std::vector<PlannedExchange> exchanges, evaluation_exchanges;
  // Bytes that each device would hold besides if nothing were sharded: of the optimizer's state, of
  // the head's weights, of those of pairs of layers, and of all others.
  int64_t shard_saved_bytes = 0, head_saved_bytes = 0, mlp_saved_bytes = 0;
  int64_t parameter_saved_bytes = 0;
  std::vector<PlannedPair> pairs;  // that are split, from the input on
  int64_t flops_per_step = 0;
  CheckpointPlan checkpoints;
  Precision precision = Precision::kFp32;               // that it computes in
  std::optional<InitialWeightsReport> initial_weights;  // where the recipe asks for some
  std::vector<std::string> warnings;                    // run_warnings()
  RunWork work;  // for forecasts: of plan_run() and plan_job() alone
};

}  // namespace trainyard
