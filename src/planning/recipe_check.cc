#include "src/planning/recipe_check.h"

#include <algorithm>
#include <string>

#include "src/base/glob.h"
#include "src/base/violations.h"
#include "src/data/limits.h"
#include "src/data/load/loader.h"
#include "src/data/load/split.h"
#include "src/data/load/windows.h"
#include "src/job/augmentation.h"
#include "src/job/metrics.h"
#include "src/planning/lora.h"
#include "src/planning/split_check.h"
#include "src/runtime/communicator.h"

namespace trainyard {

namespace {

constexpr int64_t kAccumulateStepsMax = 65536;
// The least number of rows per evaluation batch, if there are as many. Evaluation has no backward
// pass, so it has memory for more rows than a small training batch, with which it would be slow.
constexpr int64_t kEvaluationBatchMin = 64;

std::string number(double v) {
  std::string text = std::to_string(v);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

void check_range(Violations& violations, const char* field, int64_t value, int64_t low,
                 int64_t high) {
  if (value >= low && value <= high) return;
  violations.add("FIELD_OUT_OF_RANGE", field,
                 std::to_string(value) + " is out of range, expected " + std::to_string(low) +
                     ".." + std::to_string(high));
}

void check_length(const Recipe& r, Violations& violations) {
  if (r.epochs != 0 && r.steps != 0) {
    violations.add("FIELD_UNUSED", "recipe", "has both epochs and steps; expected exactly one");
  } else if (r.epochs == 0 && r.steps == 0) {
    violations.add("FIELD_REQUIRED", "recipe",
                   "has neither epochs nor steps; expected exactly one");
  }
}

void check_intervals(const Recipe& r, Violations& violations) {
  if (r.keep_best_checkpoint && r.keep_best.metric.empty()) {
    violations.add("FIELD_UNUSED", "recipe.keep_best_checkpoint",
                   "has no effect without recipe.keep_best; remove it or set "
                   "recipe.keep_best.metric");
  }
  if (r.evaluate_every_steps > 0 && !r.holds_out_rows()) {
    violations.add("FIELD_UNUSED", "recipe.evaluate_every_steps",
                   "has no effect without validation rows; remove it or set "
                   "recipe.validation_split");
  }
}

// Refuses values that were changed although the chosen type ignores them. Here a value equal to the
// default cannot be distinguished from an omitted one; the conversion from the wire can, and
// refuses such values, too.
void check_unused(const Recipe& r, Violations& violations) {
  check_unused_rows(r.optimizer, default_optimizer(r.optimizer.type), "recipe.optimizer.",
                    violations);
  check_unused_rows(r.schedule, ScheduleSpec(), "recipe.schedule.", violations);
  if (r.schedule.type != "multi_step" && !r.schedule.milestones.empty()) {
    violations.add("FIELD_UNUSED", "recipe.schedule.milestones",
                   "has no effect here; remove it or choose type: multi_step");
  }
}

// Returns the first 16 divisors of n, for messages that list the accepted values.
std::string divisors(int64_t n) {
  std::string text;
  int shown = 0;
  for (int64_t k = 1; k <= std::min<int64_t>(n, kAccumulateStepsMax) && shown < 16; ++k) {
    if (n % k != 0) continue;
    text += (shown++ > 0 ? ", " : "") + std::to_string(k);
  }
  return text;
}

void check_accumulation(const Recipe& r, Violations& violations) {
  if (r.accumulate_steps >= 1 && r.batch_size >= 1 && r.batch_size % r.accumulate_steps != 0) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.accumulate_steps",
                   std::to_string(r.accumulate_steps) + " does not divide recipe.batch_size " +
                       std::to_string(r.batch_size) + ", expected one of " +
                       divisors(r.batch_size));
  }
}

void check_ranks(const Recipe& r, int64_t ranks, Violations& violations) {
  const bool divides =
      r.accumulate_steps >= 1 && r.batch_size >= 1 && r.batch_size % r.accumulate_steps == 0;
  if (ranks < 1 || ranks > kRanksMax) {
    check_range(violations, "resources.gpus", ranks, 1, kRanksMax);
  } else if (divides && r.micro_batch() % ranks != 0) {
    violations.add(
        "FIELD_OUT_OF_RANGE", "resources.gpus",
        std::to_string(ranks) + " does not divide " +
            (r.accumulate_steps == 1 ? "recipe.batch_size " + std::to_string(r.batch_size)
                                     : "the " + std::to_string(r.micro_batch()) +
                                           " rows of a micro-batch (recipe.batch_size over "
                                           "recipe.accumulate_steps)") +
            ", expected one of " + divisors(r.micro_batch()));
  }
}

void check_precision(Precision precision, DeviceTraits traits, Violations& violations) {
  if (precision != Precision::kBf16 || traits.has_bf16) return;
  violations.add("FIELD_UNSUPPORTED", "recipe.precision",
                 "bf16 needs a GPU of compute capability 8.0 or later, and this one is older; "
                 "expected " +
                     std::string(kPrecisionsWithoutBf16));
}

/// Returns text such as " or head or mlp": the parts of `shard` that do not depend on the
/// optimizer's state.
std::string left_over(Shard shard) {
  std::string text;
  for (const Shard part : {Shard::kHead, Shard::kMlp}) {
    if (has(shard, part)) text += " or " + name_of(part);
  }
  return text;
}

void check_shard(const Recipe& r, int64_t ranks, Violations& violations) {
  if (r.shard == Shard::kNone) return;
  if (ranks == 1) {
    violations.add(
        "FIELD_CONFLICT", "resources.shard",
        name_of(r.shard) +
            (splits_layers(r.shard)
                 ? " needs resources.gpus above 1, expected that or shard: none"
                 : " needs resources.gpus or resources.nodes above 1, expected one of these or "
                   "shard: none"));
    return;
  }
  if (splits_head(r.shard) && r.optimizer.type == "adafactor") {
    violations.add("FIELD_CONFLICT", "resources.shard",
                   name_of(r.shard) +
                       " needs an optimizer that updates each row of the head by itself, and "
                       "adafactor scales by all of them; expected shard: none, or another "
                       "recipe.optimizer");
  } else if (splits_mlp(r.shard) &&
             (r.optimizer.type == "adafactor" || r.optimizer.type == "muon")) {
    violations.add("FIELD_CONFLICT", "resources.shard",
                   name_of(r.shard) +
                       " needs an optimizer that updates parts of a layer's weights by "
                       "themselves, and " +
                       r.optimizer.type +
                       " updates tensors as a whole; expected shard: none, or another "
                       "recipe.optimizer");
  } else if (shards_optimizer(r.shard) && !can_shard(r.optimizer)) {
    const std::string why = r.optimizer.type == "sgd"
                                ? "sgd without momentum keeps no state that could be sharded"
                                : r.optimizer.type + " updates tensors as a whole";
    violations.add("FIELD_CONFLICT", "resources.shard",
                   why + ", expected shard: none" + left_over(r.shard) +
                       ", or as recipe.optimizer one of adam, adamw, lion, rmsprop, and sgd with "
                       "momentum");
  } else if (shards_parameters(r.shard) && !updates_elements(r.optimizer)) {
    violations.add("FIELD_CONFLICT", "resources.shard",
                   name_of(r.shard) + " needs an optimizer that updates each element by itself, " +
                       "and " + r.optimizer.type + " updates tensors as a whole, expected shard: " +
                       "none" + left_over(r.shard) +
                       ", or as recipe.optimizer one of adam, adamw, lion, rmsprop and sgd");
  }
}

void check_initial_weights(const InitialWeights& w, Violations& violations) {
  const auto check = [&](const std::vector<std::string>& patterns, const char* field) {
    if (patterns.size() > kPatternsMax) {
      violations.add("FIELD_OUT_OF_RANGE", "recipe.initial_weights." + std::string(field),
                     too_many(patterns.size()));
    }
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!patterns[i].empty() && patterns[i].size() <= kPatternLengthMax) continue;
      violations.add("FIELD_OUT_OF_RANGE",
                     "recipe.initial_weights." + std::string(field) + "[" + std::to_string(i) + "]",
                     "expected a pattern of 1..256 characters, such as conv*");
    }
  };
  check(w.include, "include");
  check(w.exclude, "exclude");
  if (w.rename.size() > kPatternsMax) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.initial_weights.rename",
                   too_many(w.rename.size()));
  }
  for (const auto& [prefix, replacement] : w.rename) {
    if (std::max(prefix.size(), replacement.size()) <= kPatternLengthMax) continue;
    violations.add("FIELD_OUT_OF_RANGE", "recipe.initial_weights.rename",
                   "expected prefixes of names, of at most 256 characters");
  }
}

// Sets the row counts of a text, whose rows are windows. Refuses a context length that is too long
// for even one window.
void count_windows(const Recipe& r, const DatasetSchema& schema, RunShape& shape,
                   Violations& violations) {
  const int64_t length = shape.context_length;
  const WindowPlan plan = plan_windows(schema, length, r.validation_split);
  shape.train_rows = plan.train;
  shape.validation_rows = plan.validation;
  shape.test_rows = plan.test;
  const auto too_short = [&](const char* part, int64_t tokens) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.context_length",
                   std::to_string(length) + " tokens and the one after them do not fit in the " +
                       part + " of " + std::to_string(tokens) + " tokens, expected 1.." +
                       std::to_string(std::max<int64_t>(tokens - 1, 1)));
  };
  if (schema.train_rows - 1 < length) {
    too_short("training text", schema.train_rows);
  } else if (schema.test_rows > 0 && plan.test == 0) {
    too_short("test text", schema.test_rows);
  }
}

/// Sets the row counts of documents, which share rows.
void count_documents(const Recipe& r, const DatasetSchema& schema, RunShape& shape) {
  shape.documents = count_document_rows(schema, shape.context_length, r.split_rule());
  shape.train_rows = shape.documents.train;
  shape.validation_rows = shape.documents.validation;
  shape.test_rows = shape.documents.test;
}

void check_context(const Recipe& r, const DatasetSchema& schema, RunShape& shape,
                   Violations& violations) {
  if (!r.packing && !schema.documents) {
    violations.add("FIELD_UNUSED", "recipe.packing",
                   "has no effect here: only the rows of dataset.documents are packed; remove it");
  }
  if (schema.documents) {
    shape.context_length = r.context_length > 0 ? std::min(r.context_length, kContextLengthMax)
                                                : default_context_length(*schema.documents);
    if (r.context_length == 1) {
      violations.add("FIELD_OUT_OF_RANGE", "recipe.context_length",
                     "1 token has no token before it from which it could be predicted, expected 2 "
                     "or more");
    }
    return;
  }
  if (!schema.stream()) {
    if (r.context_length != 0) {
      violations.add("FIELD_UNUSED", "recipe.context_length",
                     schema.kind == DatasetSchema::Kind::kText
                         ? "has no effect here: the rows of this dataset have " +
                               std::to_string(schema.text.max_length) + " tokens each; remove it"
                         : "has no effect here: only text has a context; remove it");
    }
    return;
  }
  shape.context_length =
      r.context_length > 0 ? std::min(r.context_length, kContextLengthMax) : kContextLengthDefault;
}

/// Returns whether validation rows are drawn from classes that all have a single row.
bool has_only_single_rows(const Recipe& r, const DatasetSchema& schema) {
  return splits_by_class(schema, r.split_rule()) &&
         std::ranges::all_of(schema.statistics->classes, [](int64_t rows) { return rows < 2; });
}

void check_row_counts(const Recipe& r, const DatasetSchema& schema, RunShape& shape,
                      Violations& violations) {
  if (schema.stream()) {
    const size_t before = violations.count();
    count_windows(r, schema, shape, violations);
    if (violations.count() > before) return;
  } else if (schema.documents) {
    count_documents(r, schema, shape);
  } else {
    shape.validation_rows = count_validation_rows(schema, r.split_rule());
    shape.train_rows = schema.train_rows - shape.validation_rows;
    shape.test_rows = schema.test_rows;
  }
  const int64_t held_out = shape.validation_rows;
  if (r.split_folds > 0 && held_out == 0) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.split.folds",
                   "fold " + std::to_string(r.split_fold) +
                       " has no row, since the only row of a class is never held out; expected "
                       "fewer folds, or more rows of each class");
    return;
  }
  if (r.validation_split > 0 && (held_out == 0 || shape.train_rows == 0)) {
    violations.add(
        "FIELD_OUT_OF_RANGE", "recipe.validation_split",
        number(r.validation_split) + " of " + std::to_string(shape.train_rows + held_out) +
            (schema.stream()    ? " windows"
             : schema.documents ? " rows of documents"
                                : " rows") +
            " leaves no " + (held_out == 0 ? "validation" : "training") +
            (schema.stream() ? " window" : " row") +
            (has_only_single_rows(r, schema)
                 ? ", since each row is of a class of its own, and the only row of a class is "
                   "never "
                   "held out; expected a target of which classes have several rows, or 0"
                 : ", expected a share that leaves both"));
    return;
  }
  if (!r.drop_last) {
    check_range(violations, "recipe.batch_size", r.batch_size, 1, kRowsMax);
  } else if (r.batch_size > shape.train_rows) {
    std::string rows = "the " + std::to_string(shape.train_rows) +
                       (schema.stream() ? " training windows" : " training rows");
    if (held_out > 0) {
      rows += " (" + std::to_string(held_out) + " more are held out by " +
              (r.split_folds > 0 ? "recipe.split.folds" : "recipe.validation_split") + ")";
    }
    violations.add("FIELD_OUT_OF_RANGE", "recipe.batch_size",
                   std::to_string(r.batch_size) + " is larger than " + rows + ", expected 1.." +
                       std::to_string(shape.train_rows) +
                       ", or recipe.drop_last: false, which repeats rows");
  }
}

/// A checkpoint is kept for good if its step is a multiple of both `checkpoint_every_steps` and
/// `keep_checkpoints_every_steps`. So keep_checkpoints_every_steps must be a multiple of
/// checkpoint_every_steps, or fewer checkpoints than requested would be kept.
Status check_kept(const Recipe& r, const RunShape& shape) {
  const int64_t every = r.keep_checkpoints_every_steps;
  if (every == 0) return {};
  const int64_t between = r.checkpoint_every_steps;
  const std::string field = "recipe.keep_checkpoints_every_steps";
  if (between > 0 && every % between != 0) {
    return field_error(
        "FIELD_OUT_OF_RANGE", field,
        std::to_string(every) + " is not a multiple of the " + std::to_string(between) +
            " steps from one checkpoint to the next (recipe.checkpoint_every_steps), expected " +
            std::to_string(between) + ", " + std::to_string(2 * between) + " and so on");
  }
  if (every > shape.steps_total) {
    return field_error("FIELD_OUT_OF_RANGE", field,
                       std::to_string(every) + " is more than the job's " +
                           std::to_string(shape.steps_total) + " steps and keeps no checkpoint");
  }
  return {};
}

/// Documents say themselves which tokens count, by the label -1.
void check_document_loss(const Objective& objective, Violations& violations) {
  if (objective.attributes.find("ignore_index") == nullptr) return;
  violations.add("FIELD_CONFLICT",
                 "model.loss." + std::string(objective.loss->field) + ".ignore_index",
                 "does not go with dataset.documents, where documents.loss decides which tokens "
                 "count; remove it");
}

/// Returns whether the rows that the recipe holds out can be counted.
bool is_split_valid(const Recipe& r, const DatasetSchema& schema, Violations& violations) {
  const size_t before = violations.count();
  check_split(r, schema, violations);
  const bool fold_is_known = r.split_folds == 0 || (r.split_folds >= 2 && r.split_fold >= 1 &&
                                                    r.split_fold <= r.split_folds);
  return violations.count() == before && fold_is_known && r.validation_split >= 0 &&
         r.validation_split < 1;
}

}  // namespace

void check_normalize(const Recipe& r, const DatasetSchema& schema, const Objective* objective,
                     Violations& violations) {
  const FixedPixelScale* const scale = find_pixel_scale(r.normalize);
  if (scale == nullptr) return;  // check_rows() refuses unknown names
  const auto refuse = [&](const char* reason, const std::string& why) {
    violations.add(reason, "recipe.normalize", r.normalize + " " + why);
  };
  if (schema.kind != DatasetSchema::Kind::kImage) {
    return refuse("FIELD_UNUSED", "has no effect here: the dataset has no images; remove it");
  }
  const auto channels = static_cast<size_t>(schema.image[0]);
  if (schema.image_dtype != DType::kU8) {
    refuse("FIELD_CONFLICT", "needs 8-bit pixels, and the dataset has " +
                                 std::string(name_of(schema.image_dtype)) +
                                 " numbers, whose range is not known; expected dataset");
  } else if (scale->mean.size() > 1 && scale->mean.size() != channels) {
    refuse("FIELD_CONFLICT", "needs images of " + std::to_string(scale->mean.size()) +
                                 " channels, and the dataset's have " + std::to_string(channels) +
                                 "; expected dataset, minus_one_to_one or zero_to_one, or for " +
                                 "JPEG and PNG files a dataset with channels: 3");
  } else if (objective != nullptr && objective->unit_input() && r.normalize != kScaleOfShares) {
    refuse("FIELD_CONFLICT",
           "gives pixels outside of [0, 1], which the model's loss needs; "
           "expected " +
               std::string(kScaleOfShares) + ", or nothing");
  }
}

Status check_model_precision(Precision precision, DeviceTraits traits) {
  if (precision != Precision::kBf16 || traits.has_bf16) return {};
  return make_error(ErrorCode::kFailedPrecondition, "PRECISION_UNSUPPORTED",
                    "the model computes in bf16, which needs a GPU of compute capability 8.0 or "
                    "later, and this one is older; use the CPU or another GPU");
}

Result<RunShape> check_recipe(const Recipe& r, const ModelSpec& model, const DatasetSchema& schema,
                              int64_t ranks, DeviceTraits traits) {
  Violations violations;
  RunShape shape;
  if (schema.train_rows < 1) {
    violations.add("DATASET_INVALID", "dataset", "has no training rows");
  }
  check_length(r, violations);
  check_rows(r, /*type=*/"", "recipe.", violations);
  check_unused(r, violations);
  if (Status s = check_optimizer(r.optimizer, r.schedule); !s.ok()) {
    violations.add(std::move(s).error());
  }
  check_intervals(r, violations);
  const bool split_ok = is_split_valid(r, schema, violations);
  check_context(r, schema, shape, violations);
  check_accumulation(r, violations);
  check_ranks(r, ranks, violations);
  check_shard(r, ranks, violations);
  check_precision(r.precision, traits, violations);
  if (r.clip_norm > 0 && r.clip_value > 0) {
    violations.add("FIELD_UNUSED", "recipe.clip_gradients",
                   "has both norm and value; expected exactly one");
  }
  if (Status s = check_parameter_groups(r.parameter_groups); !s.ok()) {
    violations.add(std::move(s).error());
  }
  check_initial_weights(r.initial_weights, violations);
  check_augmentation(r.augmentation, schema, violations);
  if (Status s = check_lora(r.lora); !s.ok()) violations.add(std::move(s).error());
  Result<Objective> objective = find_objective(model, schema.interface(shape.context_length));
  check_normalize(r, schema, objective.ok() ? &*objective : nullptr, violations);
  if (objective.ok()) {
    check_metrics(r, objective->interface, r.holds_out_rows(), violations);
    check_mixing(r.augmentation, r.batch_size, *objective, violations);
    if (schema.documents) check_document_loss(*objective, violations);
    shape.objective = std::move(*objective);
  } else {
    violations.add(objective.error());
  }
  if (r.batch_size < 1) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.batch_size",
                   std::to_string(r.batch_size) + " is out of range, expected at least 1");
  } else if (split_ok && schema.train_rows >= 1) {
    check_row_counts(r, schema, shape, violations);
  }
  if (!violations.empty()) return violations.to_error();

  shape.micro_batches = r.accumulate_steps;
  shape.ranks = ranks;
  shape.rank_batch = r.micro_batch() / ranks;
  shape.traits = traits;
  shape.steps_per_epoch = batches_per_epoch(shape.train_rows, r.batch_size, r.drop_last);
  shape.steps_total = r.steps > 0 ? r.steps : r.epochs * shape.steps_per_epoch;
  if (r.schedule.warmup_steps > shape.steps_total) {
    return field_error("FIELD_OUT_OF_RANGE", "recipe.schedule.warmup_steps",
                       std::to_string(r.schedule.warmup_steps) + " is more than the job's " +
                           std::to_string(shape.steps_total) + " steps, expected 0.." +
                           std::to_string(shape.steps_total));
  }
  if (Status s = check_kept(r, shape); !s.ok()) return std::move(s).error();
  const int64_t rows = std::max(shape.validation_rows, shape.test_rows);
  // Each window has many rows of scores, so a batch of windows is never too small.
  const int64_t batch =
      schema.next_token() ? shape.rank_batch : std::max(shape.rank_batch, kEvaluationBatchMin);
  shape.evaluation_batch = std::min((rows + ranks - 1) / ranks, batch);
  if (schema.documents) return shape;
  shape.resident =
      plan_resident(r, schema, shape.context_length, shape.objective,
                    shape.validation_rows > 0 ? shape.evaluation_batch : 0, traits.alignment);
  if (!shape.resident.has_value()) {
    shape.staged = plan_staged(r, schema, shape.rank_batch, traits.alignment);
  }
  return shape;
}

PreprocessingOptions preprocessing_options(const Recipe& recipe, const RunShape& shape) {
  const bool shares = shape.objective.unit_input();
  return {shape.context_length, find_pixel_scale(shares ? kScaleOfShares : recipe.normalize),
          shape.objective.interface.category_codes};
}

}  // namespace trainyard
