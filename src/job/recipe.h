// src/job/recipe.h: everything that decides the numbers of a run, apart from data and device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/base/field_rows.h"
#include "src/base/fields.h"
#include "src/data/limits.h"
#include "src/job/augmentation.h"
#include "src/models/model_spec.h"
#include "src/optim/parameter_groups.h"
#include "src/optim/sharding.h"
#include "src/plan/program.h"

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

inline constexpr double kRunStepsMax = 0x1p40;
/// Where the recipe says nothing and the dataset is a text.
inline constexpr int64_t kContextLengthDefault = 256;

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
  std::vector<std::string> metrics;            // beside the target's usual ones (src/job/metrics.h)

  int64_t micro_batch() const { return batch_size / accumulate_steps; }
};
/// A default stays as it is for ever: checkpoints from before a field existed mean it.
inline const std::vector<FieldRow<Recipe>>& field_rows(const Recipe&) {
  using S = Recipe;
  static const std::vector<FieldRow<S>> rows = {
      {"epochs", &S::epochs, "The job passes over its training rows this many times.",
       from_to(1, 1'000'000), kOffAtZero | kForks},
      {"steps", &S::steps, "The job trains this many batches, in place of `epochs`.",
       from_to(1, kRunStepsMax), kOffAtZero | kForks},
      {"batch_size", &S::batch_size,
       "A step trains this many rows. With `auto`, the server chooses."},
      {"seed", &S::seed, "All randomness follows from this number.", kAnyValue, kPlanIgnores},
      {"shuffle", &S::shuffle, "Each epoch takes the rows in a new order."},
      {"drop_last", &S::drop_last, "An epoch leaves out the last rows, which do not fill a batch."},
      {"validation_split", &S::validation_split,
       "This share of the training rows is held out for the `val/` metrics.", from_to(0, 0.9)},
      {"context_length", &S::context_length,
       "A sample of one text has this many tokens, by default " +
           std::to_string(kContextLengthDefault) + ".",
       from_to(1, kContextLengthMax), kOffAtZero},
      {"evaluate_every_steps", &S::evaluate_every_steps,
       "The job is evaluated each time this many steps have passed; by default, after each epoch.",
       from_to(1, kRunStepsMax), kOffAtZero | kForks | kOutsideIdentity},
      {"checkpoint_every_steps", &S::checkpoint_every_steps,
       "A checkpoint is written each time this many steps have passed; by default, time decides.",
       from_to(1, kRunStepsMax), kOffAtZero | kOutsideIdentity},
      {"keep_checkpoints", &S::keep_checkpoints, "This many of the newest checkpoints stay.",
       from_to(1, 100), kOutsideIdentity},
      {"keep_checkpoints_every_steps", &S::keep_checkpoints_every_steps,
       "Checkpoints of steps that are multiples of this stay as well.", from_to(1, kRunStepsMax),
       kOffAtZero | kOutsideIdentity},
      {"keep_best_checkpoint", &S::keep_best_checkpoint,
       "The checkpoint of the best evaluation stays as well.", kAnyValue, kOutsideIdentity},
      {"accumulate_steps", &S::accumulate_steps,
       "Each batch runs as this many micro-batches, a divisor of `batch_size`.", from_to(1, 65536)},
      {"clip_gradients.norm", &S::clip_norm,
       "All gradients are scaled so that their global norm is at most this.", above(0, 1e30),
       kOffAtZero | kForks | kPlanIgnores},
      {"clip_gradients.value", &S::clip_value,
       "Each element of each gradient is clipped to [-value, value].", above(0, 1e30),
       kOffAtZero | kForks | kPlanIgnores},
      {"ema.decay", &S::ema_decay,
       "Evaluations and the model use an average of the weights. A step keeps this share of it.",
       above_below(0, 1), kOffAtZero | kForksAboveZero | kPlanIgnores},
  };
  return rows;
}
/// The fields that decide the numbers of a run; docs/decisions/0048 says why the others do not.
template <FieldsOf<Recipe> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  visit_rows(spec, visit);
  visit("optimizer", spec.optimizer);
  visit("schedule", spec.schedule);
  visit("precision", spec.precision);
  visit("parameter_groups", spec.parameter_groups);
  visit("keep_best", spec.keep_best);
  visit("early_stopping", spec.early_stopping);
  // Evaluations that decide what is kept, or when a run ends, do so where they happen.
  if (!spec.keep_best.metric.empty() || !spec.early_stopping.metric.empty()) {
    visit("evaluate_every_steps", spec.evaluate_every_steps);
  }
  visit("initial_weights", spec.initial_weights);
  visit("augmentation", spec.augmentation);
  visit("lora", spec.lora);
}

/// Paths of fields in spec files ("recipe.optimizer.learning_rate") whose row has a trait.
std::vector<std::string> recipe_fields_with(FieldTrait trait);

}  // namespace trainyard
