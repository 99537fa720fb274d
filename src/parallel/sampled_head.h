// src/parallel/sampled_head.h: computes a model's head and loss only over the classes of the
// batch's labels and some randomly drawn ones (model.loss: sampled_softmax).
//
//   labels, step ── SampleClasses ─┬─ classes ── TakeRows of weight, of bias ──┐
//   x ─────────────────────────────┼────────────────────────────────────────── Gemm ── z ─┐
//                                  └─ position, log_expected ── SampledSoftmaxCrossEntropyLoss
//
// Only the gathered rows have gradients and are updated, so that no tensor of a step is as large as
// the head. All ranks draw the same classes and gather the rows of all ranks' labels, so that the
// gradient of these rows is all-reduced like any other. The micro-batches of a step share its drawn
// classes, and the rows of all their labels.
#pragma once

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/models/model_spec.h"
#include "src/parallel/gathered_rows.h"

namespace trainyard {

struct SampledModel {
  Model model;            // without an output: the scores of all classes are never computed
  GatheredTables tables;  // the head's weights and bias
};

/// `model` must have its loss and not be differentiated yet. Refuses, naming model.loss, a head
/// that is not a dense layer with weights of its own, and settings of the recipe that cannot work
/// with updates of single rows.
Result<SampledModel> sample_head(const Model& model, const Recipe& recipe, Rank rank);

}  // namespace trainyard
