// src/planning/recipe_check.h: checks a recipe against model and dataset before a graph is built.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/result.h"
#include "src/base/violations.h"
#include "src/data/load/packing.h"
#include "src/data/preprocessing.h"
#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/models/loss.h"
#include "src/plan/device_traits.h"
#include "src/planning/resident_plan.h"
#include "src/planning/staged_plan.h"

namespace trainyard {

/// The row and step counts that follow from a recipe and a dataset's size, and the model's
/// objective.
struct RunShape {
  int64_t train_rows = 0;
  int64_t validation_rows = 0;
  int64_t test_rows = 0;
  int64_t steps_per_epoch = 0;
  int64_t steps_total = 0;
  int64_t micro_batches = 1;     // runs of the training program in one step
  int64_t ranks = 1;             // devices, each with an equal part of every micro-batch
  int64_t rank_batch = 1;        // rows that one device computes at a time
  DeviceTraits traits;           // of the devices that train
  int64_t context_length = 0;    // tokens per row of a language model: a window of a text, or
                                 // documents; else 0
  DocumentRows documents;        // if the rows are those of documents
  int64_t evaluation_batch = 0;  // rows per run of a rank's evaluation program; 0: no evaluation
  Objective objective;
  // How a device that can gather rows gets the training rows: they are resident (`resident`), or
  // sent as stored and gathered there (`staged`). If neither is set, the host makes the batches.
  std::optional<ResidentPlan> resident;
  std::optional<StagedPlan> staged;
};

/// The precisions of a GPU without bfloat16, for messages.
inline constexpr std::string_view kPrecisionsWithoutBf16 =
    "fp16 (half precision with loss scaling), tf32 or fp32";

/// Refuses a finished model's precision if the device does not have it:
/// FAILED_PRECONDITION/PRECISION_UNSUPPORTED.
Status check_model_precision(Precision precision, DeviceTraits traits);

/// Refuses fields that are out of range or have no effect. One error lists up to 16 of them by the
/// names that users write, such as recipe.batch_size. Only the model's objective is used. `ranks`
/// is the number of devices, `traits` their Backend::traits().
Result<RunShape> check_recipe(const Recipe& recipe, const ModelSpec& model,
                              const DatasetSchema& schema, int64_t ranks = 1,
                              DeviceTraits traits = {});

/// Refuses a fixed scale of pixels for rows that have no 8-bit pixels in its channels, and for a
/// model whose objective needs another. `objective`: null if it is not known.
void check_normalize(const Recipe& recipe, const DatasetSchema& schema, const Objective* objective,
                     Violations& violations);

/// Returns how the rows of a job with this recipe are preprocessed.
PreprocessingOptions preprocessing_options(const Recipe& recipe, const RunShape& shape);

}  // namespace trainyard
