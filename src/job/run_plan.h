// src/job/run_plan.h: the facts about a run that are known before its first step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/forecast/forecast.h"
#include "src/plan/program.h"

namespace trainyard {

/// The result of matching `initial_weights`: lists of tensor names, each in the model's order.
struct InitialWeightsReport {
  std::string source;
  std::string naming;  // the library and network whose names the source has; empty: the model's own
  std::string normalize;  // the value of recipe.normalize that published weights of it expect
  std::vector<std::string> taken;
  std::vector<std::string> left_out;    // excluded by the patterns
  std::vector<std::string> missing;     // the source does not have them
  std::vector<std::string> mismatched;  // "fc2.weight [10, 84] where [3, 84] is needed"
  std::vector<std::string> unused;      // tensors of the source that the model does not have
  std::vector<std::string> unneeded;    // those that no model here has, each with the reason
  /// Returns a summary on one line, with each list that is not empty.
  std::string text() const;
};

/// The most work that a kill can lose: that since the newest checkpoint began. It is given in steps
/// or in seconds; the other one is 0.
struct CheckpointPlan {
  int64_t size_bytes = 0;       // upper bound for a checkpoint's tensors
  int64_t lost_steps_max = 0;   // if the recipe names the steps of checkpoints
  double lost_seconds_max = 0;  // if checkpoints are written at intervals of time
};

/// The exchanges of one kind between the devices of a job, in one step or in one batch of an
/// evaluation.
struct PlannedExchange {
  std::string kind;  // "all_reduce", "reduce_scatter", "all_gather", "gather_rows", "scatter_rows"
  std::string axis;  // the axis that is split over the devices: "rows", "elements"; empty: none is
  int64_t count = 0;
  int64_t bytes = 0;             // size of the tensors that are exchanged
  int64_t sent_bytes = 0;        // lower bound for the bytes that each device sends
  int64_t overlapped_count = 0;  // how many of `count` overlap with computation
};

/// Two layers whose hidden units are split over the devices (src/parallel/split_mlp.h).
struct PlannedPair {
  std::string first, second;  // names of the layers
  int64_t units = 0;          // hidden units, on all devices together
  int64_t saved_bytes = 0;    // weights, optimizer state, averages and sums that a device need not
                              // store
  int64_t exchanged_bytes = 0;  // size of the tensors that are exchanged for the pair in a step
};

struct RunPlan {
  int64_t parameter_count = 0;          // parameters of the resulting model
  int64_t trained_parameter_count = 0;  // those that the optimizer changes
  int64_t steps_total = 0;
  int64_t steps_per_epoch = 0;
  int64_t first_step = 0;  // > 0 after a resume
  int64_t train_rows = 0, validation_rows = 0, test_rows = 0;
  int64_t ranks = 1;       // devices that train the job together
  MemoryBreakdown memory;  // memory on each device
  // The training rows in the memory of each GPU, in addition to `memory`
  // (src/planning/resident_plan.h). A plan for the CPU must set it to 0, since the CPU keeps no
  // resident dataset.
  int64_t dataset_bytes = 0;
  // A digest of the file of initial weights and its mapped parts (MemoryBreakdown::mapped_bytes).
  // Jobs with equal digests share all of that memory. It is empty if nothing is mapped.
  std::string mapped_parts = {};
  // Memory of the host, in addition: the copy from which a checkpoint is written, and the loader's
  // batches.
  int64_t host_bytes = 0;
  // The exchanges of a step and those of a batch that is evaluated, each in the order in which they
  // begin; empty for a single device.
  std::vector<PlannedExchange> exchanges, evaluation_exchanges;
  // Bytes that sharding saves on each device: optimizer state, the head's weights, the weights of
  // pairs of layers, and all other weights.
  int64_t shard_saved_bytes = 0, head_saved_bytes = 0, mlp_saved_bytes = 0;
  int64_t parameter_saved_bytes = 0;
  std::vector<PlannedPair> pairs;  // pairs of layers that are split, in order from the input on
  int64_t flops_per_step = 0;
  CheckpointPlan checkpoints;
  Precision precision = Precision::kFp32;
  std::optional<InitialWeightsReport> initial_weights;  // if the recipe requests some
  std::vector<std::string> warnings;                    // the result of run_warnings()
  RunWork work;  // for forecasts; only plan_run() and plan_job() fill it
};

}  // namespace trainyard
