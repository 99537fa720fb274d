// src/job/recipe.h: all settings that influence the numbers of a run, apart from data and device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/field_rows.h"
#include "src/base/fields.h"
#include "src/checkpoint/weights_file.h"
#include "src/data/limits.h"
#include "src/data/load/split.h"
#include "src/data/pixel_scales.h"
#include "src/job/augmentation.h"
#include "src/models/model_spec.h"
#include "src/optim/parameter_groups.h"
#include "src/optim/sharding.h"
#include "src/plan/program.h"

namespace trainyard {

/// Keeps a copy of the weights of the evaluation with the best `metric` ("val/accuracy"). Training
/// continues to its end, and the kept weights become the job's model. Off if `metric` is empty.
struct KeepBest {
  std::string metric = {};
  std::string mode = {};  // "min" or "max"; empty: the better direction of the metric
};
template <FieldsOf<KeepBest> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [metric, mode] = spec;
  visit("metric", metric);
  visit("mode", mode);
}

/// Ends the job after `patience` evaluations in a row without an improvement of more than
/// `min_delta` over the best one. Off if `metric` is empty.
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

/// Initial weights from another model, whose tensors are matched by name. `include` and `exclude`
/// are patterns of src/base/glob.h; an empty `include` matches all names.
struct InitialWeights {
  std::string source = {};  // the model's or file's name, for messages; empty: none
  // Prefixes: a name of the source that begins with a key has the key replaced by its value. If
  // several keys match, the longest is used.
  std::map<std::string, std::string> rename = {};
  std::vector<std::string> include = {}, exclude = {};
  bool skip_mismatched = false;  // tensors of another shape keep random values; else an error
  bool partial = false;  // accepts a source of which most is unused, or that leaves most at random
  std::string title = {};  // what people call the source; changes no run
  // The tensors of the source, once its header is known; not a setting. Their types decide how
  // frozen parameters are stored (src/planning/frozen_storage.h).
  std::shared_ptr<const std::vector<FileTensor>> tensors = {};
};
template <FieldsOf<InitialWeights> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  [[maybe_unused]] auto& [source, rename, include, exclude, skip_mismatched, partial, title,
                          tensors] = spec;
  visit("source", source);
  visit("rename", rename);
  visit("include", include);
  visit("exclude", exclude);
  visit("skip_mismatched", skip_mismatched);
  visit("partial", partial);
}

inline constexpr double kFoldsMax = 100;
inline constexpr double kRunStepsMax = 0x1p40;
/// Where the recipe says nothing and the dataset is a text.
inline constexpr int64_t kContextLengthDefault = 256;

/// In the type of the file of initial weights if that is a 16-bit type, else in F32.
inline constexpr std::string_view kFrozenAsInFile = "auto";
inline std::vector<std::string> frozen_storage_names() {
  return {std::string(kFrozenAsInFile), "fp32", "bf16", "fp16"};
}

/// All settings that influence the numbers of a run, apart from data and device.
struct Recipe {
  int64_t epochs = 0;  // exactly one of epochs and steps is > 0
  int64_t steps = 0;
  int64_t batch_size = 64;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = true;                // skips an epoch's last rows if they do not fill a batch
  double validation_split = 0;          // share of the training rows held out, [0, 0.9]
  std::string split_group, split_time;  // columns by which rows are held out; empty: none
  int64_t split_folds = 0;              // the validation rows are one of so many parts; 0: a share
  int64_t split_fold = 0;               // this part, from 1
  // Tokens per sample of a text or row of documents; 0: kContextLengthDefault, and for documents
  // default_context_length().
  int64_t context_length = 0;
  bool packing = true;  // of documents: several share a row
  // The scale of pixels (src/data/pixel_scales.h).
  std::string normalize = std::string(kScaleOfDataset);
  int64_t evaluate_every_steps = 0;          // 0: at the end of each epoch
  int64_t checkpoint_every_steps = 0;        // 0: at intervals of time (checkpoint_pace.h)
  int keep_checkpoints = 2;                  // the number of newest checkpoints that are kept
  int64_t keep_checkpoints_every_steps = 0;  // also keeps those of multiples of this step; 0: none
  bool keep_best_checkpoint = false;         // also keeps that of keep_best's best evaluation
  Recompute recompute = Recompute::kNone;    // saves memory and costs time; the bits are the same
  Precision precision = Precision::kFp32;    // a JobSpec has another default (kPrecisionDefault)
  // Each step's batch runs as this many micro-batches of batch_size / accumulate_steps rows, and
  // the mean of their gradients updates the weights. The result is that of the whole batch, with
  // the memory of a micro-batch.
  int64_t accumulate_steps = 1;
  // The field resources.shard, for jobs on several devices. On a host, `optimizer` and `parameters`
  // give the same bits as no sharding; `head` and `mlp` differ by rounding.
  Shard shard = Shard::kNone;
  double clip_norm = 0;   // limit for the global norm of all gradients; 0: not clipped
  double clip_value = 0;  // limit for each element of the gradients; 0: not clipped
  // Decay of the exponential moving average of the weights, which replaces the weights in
  // evaluations and in the exported model; 0: no average.
  double ema_decay = 0;
  std::vector<ParameterGroup> parameter_groups;
  KeepBest keep_best;
  EarlyStopping early_stopping;
  InitialWeights initial_weights;
  std::vector<AugmentationSpec> augmentation;  // applied to training images in this order
  LoraSpec lora;                               // rank 0: no LoRA
  // How parameters that are not trained are stored (frozen_storage_names()).
  std::string frozen_storage = std::string(kFrozenAsInFile);
  std::vector<std::string> metrics;  // in addition to the usual ones (src/job/metrics.h)

  bool holds_out_rows() const { return validation_split > 0 || split_folds > 0; }
  SplitRule split_rule() const {
    return {validation_split, seed, split_group, split_time, split_folds, split_fold, packing};
  }
  int64_t micro_batch() const { return batch_size / accumulate_steps; }
};
/// A field's default must never change: it is the value of checkpoints older than the field.
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
      {"split.group", &S::split_group,
       "Rows with the same value in this column are all trained on, or all held out."},
      {"split.time", &S::split_time,
       "The rows with the latest dates or numbers in this column are held out."},
      {"split.folds", &S::split_folds,
       "The training rows are divided into this many parts, one of which is held out.",
       from_to(2, kFoldsMax), kOffAtZero},
      {"split.fold", &S::split_fold,
       "This part is held out; without it, the job becomes an array with a member for each part.",
       from_to(1, kFoldsMax), kOffAtZero},
      {"context_length", &S::context_length,
       "A sample of one text has this many tokens, by default " +
           std::to_string(kContextLengthDefault) +
           ", or a row of documents, by default 1024 or the length of the longest.",
       from_to(1, kContextLengthMax), kOffAtZero},
      {"packing", &S::packing,
       "Several documents share a row; without it, each has a row of its own, which is padded."},
      {"normalize",
       &S::normalize,
       "Pixels are standardized by the training images or by ImageNet's mean and deviation, or "
       "brought to a fixed range.",
       kAnyValue,
       0,
       {},
       pixel_scale_names()},
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
       "Evaluations and the model use an average of the weights, of which a step keeps this share.",
       above_below(0, 1), kOffAtZero | kForksAboveZero | kPlanIgnores},
      {"frozen_storage",
       &S::frozen_storage,
       "Parameters that are not trained are stored in this type; `auto` is the 16-bit type of the "
       "file of `initial_weights`, if it has one.",
       kAnyValue,
       0,
       {},
       frozen_storage_names()},
  };
  return rows;
}
/// Visits the fields that influence the numbers of a run; docs/decisions/identity-of-a-run.md
/// explains why the other fields do not.
template <FieldsOf<Recipe> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  visit_rows(spec, visit);
  visit("optimizer", spec.optimizer);
  visit("schedule", spec.schedule);
  visit("precision", spec.precision);
  visit("parameter_groups", spec.parameter_groups);
  visit("keep_best", spec.keep_best);
  visit("early_stopping", spec.early_stopping);
  // With keep_best or early_stopping, the steps of the evaluations influence the result too.
  if (!spec.keep_best.metric.empty() || !spec.early_stopping.metric.empty()) {
    visit("evaluate_every_steps", spec.evaluate_every_steps);
  }
  visit("initial_weights", spec.initial_weights);
  visit("augmentation", spec.augmentation);
  visit("lora", spec.lora);
}

/// Returns the paths in spec files ("recipe.optimizer.learning_rate") of the fields whose row has a
/// trait.
std::vector<std::string> recipe_fields_with(FieldTrait trait);

}  // namespace trainyard
