// src/train/trainer.h: one job from spec to trained model, on one backend.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/fields.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "src/data/dataset.h"
#include "src/forecast/forecast.h"
#include "src/models/model_spec.h"
#include "src/optim/parameter_groups.h"
#include "src/optim/sharding.h"
#include "src/plan/program.h"
#include "src/runtime/backend.h"
#include "src/train/augmentation.h"
#include "src/train/run_clock.h"

namespace trainyard {

/// Keeps the weights of the evaluation where `metric` ("val/accuracy") was best, and trains on: the
/// job's model is that one. Off where the metric is empty.
struct KeepBest {
  std::string metric = {};
  std::string mode = {};  // "min" or "max"; empty: what is better for the metric
};
template <FieldsOf<KeepBest> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [metric, mode] = spec;
  visit("metric", metric);
  visit("mode", mode);
}

/// Ends the job after `patience` evaluations in a row without an improvement of more than
/// `min_delta` over the best one. Off where the metric is empty.
struct EarlyStopping {
  std::string metric = {};
  int64_t patience = 1;
  double min_delta = 0;
  std::string mode = {};
};
template <FieldsOf<EarlyStopping> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [metric, patience, min_delta, mode] = spec;
  visit("metric", metric);
  visit("patience", patience);
  visit("min_delta", min_delta);
  visit("mode", mode);
}

/// Weights to begin with, from another model: tensors are matched by name. Patterns are those of
/// src/base/glob.h; without `include` all names count.
struct InitialWeights {
  std::string source = {};  // the model's or file's name, for messages; empty: none
  // A source's name that begins with a key begins with its value here; the longest key counts.
  std::map<std::string, std::string> rename = {};
  std::vector<std::string> include = {}, exclude = {};
  bool skip_mismatched = false;  // a shape that differs is left as drawn; else it is refused
};
template <FieldsOf<InitialWeights> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [source, rename, include, exclude, skip_mismatched] = spec;
  visit("source", source);
  visit("rename", rename);
  visit("include", include);
  visit("exclude", exclude);
  visit("skip_mismatched", skip_mismatched);
}

/// Everything that decides the numbers of a run, apart from data and device.
struct Recipe {
  int64_t epochs = 0;  // exactly one of epochs and steps is > 0
  int64_t steps = 0;
  int64_t batch_size = 64;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = true;               // of an epoch, the rows that do not fill a batch
  double validation_split = 0;         // share of the training rows held out, [0, 0.9]
  int64_t context_length = 0;          // tokens of a sample of a text; 0: kContextLengthDefault
  int64_t evaluate_every_steps = 0;    // 0: at the end of each epoch
  int64_t checkpoint_every_steps = 0;  // 0: by time (checkpoint_pace.h)
  int keep_checkpoints = 2;            // the newest; beside them stay ...
  int64_t keep_checkpoints_every_steps = 0;  // ... those of multiples of so many steps; 0: none
  bool keep_best_checkpoint = false;         // ... and that of keep_best's evaluation
  Recompute recompute = Recompute::kNone;    // costs time, saves memory, changes no bit
  Precision precision = Precision::kFp32;    // a JobSpec without one: kPrecisionDefault (convert/)
  // Each step's batch runs as this many micro-batches of batch_size / accumulate_steps rows, and
  // their mean gradient updates: the large batch's result in the small one's memory.
  int64_t accumulate_steps = 1;
  Shard shard = Shard::kNone;  // resources.shard: of several devices; optimizer, parameters: the
                               // same bits on a host, head and mlp: the same but for roundings
  double clip_norm = 0;        // global norm of all gradients; 0: not clipped
  double clip_value = 0;       // each gradient's elements; 0: not clipped
  double ema_decay = 0;        // moving average of the weights, evaluated and exported; 0: none
  std::vector<ParameterGroup> parameter_groups;
  KeepBest keep_best;
  EarlyStopping early_stopping;
  InitialWeights initial_weights;
  std::vector<AugmentationSpec> augmentation;  // of training images, in order
  LoraSpec lora;                               // rank 0: all parameters train that no group freezes
  std::vector<std::string> metrics;  // beside the target's usual ones (src/train/metrics.h)

  int64_t micro_batch() const { return batch_size / accumulate_steps; }
};
/// The fields that decide the numbers of a run; docs/decisions/0048 says why the others do not. A
/// default stays as it is for ever: checkpoints from before a field existed mean it.
template <FieldsOf<Recipe> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [epochs, steps, batch_size, optimizer, schedule, seed, shuffle, drop_last, validation_split,
         context_length, evaluate_every_steps, checkpoint_every_steps, keep_checkpoints,
         keep_checkpoints_every_steps, keep_best_checkpoint, recompute, precision, accumulate_steps,
         shard, clip_norm, clip_value, ema_decay, parameter_groups, keep_best, early_stopping,
         initial_weights, augmentation, lora, metrics] = spec;
  visit("epochs", epochs);
  visit("steps", steps);
  visit("batch_size", batch_size);
  visit("optimizer", optimizer);
  visit("schedule", schedule);
  visit("seed", seed);
  visit("shuffle", shuffle);
  visit("drop_last", drop_last);
  visit("validation_split", validation_split);
  visit("context_length", context_length);
  visit("precision", precision);
  visit("accumulate_steps", accumulate_steps);
  visit("clip_gradients.norm", clip_norm);
  visit("clip_gradients.value", clip_value);
  visit("ema.decay", ema_decay);
  visit("parameter_groups", parameter_groups);
  visit("keep_best", keep_best);
  visit("early_stopping", early_stopping);
  // Evaluations that decide what is kept, or when a run ends, do so where they happen.
  if (!keep_best.metric.empty() || !early_stopping.metric.empty()) {
    visit("evaluate_every_steps", evaluate_every_steps);
  }
  visit("initial_weights", initial_weights);
  visit("augmentation", augmentation);
  visit("lora", lora);
}

/// Where the recipe says nothing and the dataset is a text.
inline constexpr int64_t kContextLengthDefault = 256;

/// Of several devices that train a job together: which one, of how many. Each takes an equal part
/// of every batch.
struct Rank {
  int64_t index = 0;
  int64_t count = 1;
};

struct TrainJob {
  ModelSpec model;
  Recipe recipe;
  std::filesystem::path dataset;          // folder of the typed dataset
  std::filesystem::path initial_weights;  // the file of recipe.initial_weights
  std::filesystem::path checkpoints;      // folder; the newest valid checkpoint in it is resumed
  std::filesystem::path
      model_output;  // folder of the trained model (model.h); written when the job succeeds
  int threads = 1;
  int64_t ranks = 1;  // devices that train it together: recorded in checkpoints; set by train()
  /// False: batches come from the host, although the device could hold the training rows.
  bool holds_rows = true;
  /// Until its first checkpoint the job waits behind each node, so that a CudaError names the node
  /// whose kernel failed: slower, and the same bits.
  bool names_faults = false;
};

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

/// What a kill costs at most: the work since the newest checkpoint began. One of the two is 0.
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

/// Two layers whose hidden units are split over the devices (src/train/split_mlp.h).
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
  // Beside that, of each GPU: the training rows (src/train/held_plan.h). 0 on the CPU, which holds
  // none; who plans for it says so.
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

/// Checks everything that can be checked without the data's content, builds and compiles the
/// training program: the daemon calls it at submit, the worker before it starts. Refusals name
/// fields of the spec. `ranks` is the spec's resources.gpus, `traits` Backend::traits() of
/// the devices: with it the plan has the bytes that they will use. CANCELLED/STOPPED soon
/// after `stop` is requested.
Result<RunPlan> plan_run(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                         int64_t ranks = 1, DeviceTraits traits = {}, std::stop_token stop = {});

struct MetricPoint {
  std::string key;  // "train/loss", "val/accuracy"
  int64_t step = 0;
  double value = 0;
};

/// Receives what a run reports; called from the training thread and must not block it. All methods
/// but started() may be called many times.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void started(const RunPlan& plan) = 0;
  /// A step is finished, or a batch of an evaluation: whoever watches knows that the run goes on.
  virtual void progressed() = 0;
  virtual void metrics(std::span<const MetricPoint> points) = 0;
  virtual void checkpoint_saved(int64_t step, const std::filesystem::path& path) = 0;
  virtual void checkpoint_failed(int64_t step, const Error& error) = 0;
  virtual void log(std::string_view message) = 0;
  /// A sentence about the data or the result that people should see.
  virtual void warn(std::string_view message) { log(message); }
  /// What the run has taken so far: as often as metrics are.
  virtual void times(const RunTimes& /*times*/) {}
};

/// [label][prediction] by "val" and "test": rows counted.
using ConfusionMatrices = std::map<std::string, std::vector<std::vector<int64_t>>>;

struct TrainResult {
  int64_t steps_done = 0;  // fewer than planned after an early stop
  std::vector<MetricPoint> final_metrics;
  ConfusionMatrices confusion;       // where the recipe asks for them
  std::vector<std::string> classes;  // their rows and columns
  // What the final metrics would be without looking at the inputs (src/train/baseline.h): by the
  // same keys.
  std::vector<MetricPoint> baselines;
  std::vector<std::string> warnings;  // that the reporter was given in this attempt
  int64_t arena_planned_bytes = 0;
  int64_t arena_used_bytes = 0;
  RunTimes times;
};

/// Trains to the end, or until `stop` is requested: then a checkpoint is written and the Error is
/// CANCELLED/STOPPED. A loss that is not finite: FAILED_PRECONDITION/LOSS_NOT_FINITE naming the
/// step; the last good checkpoint stays. Faults are exceptions. `clock` decides when checkpoints
/// are written, never what they hold.
Result<TrainResult> train(const TrainJob& job, Backend& backend, Files& files, Reporter& reporter,
                          std::stop_token stop, const Clock& clock = system_clock());

/// The same on several devices, which are connected (open_devices()), of one process or of several
/// that train the job together, each by this call: results depend on how many devices there are in
/// all. ABORTED/RANKS_DIFFER if the processes are given different jobs or checkpoints; throws
/// RankLost when another process goes. The first process alone writes. Keeps those that are stuck
/// when it throws RankStopped (replicated_session.h).
Result<TrainResult> train(const TrainJob& job, const std::vector<RankDevice>& devices, Files& files,
                          Reporter& reporter, std::stop_token stop,
                          const Clock& clock = system_clock());

}  // namespace trainyard
