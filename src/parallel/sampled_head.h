// src/parallel/sampled_head.h: a model's head and the loss of its scores, over the classes of the
// batch's labels and some that are drawn (model.loss: sampled_softmax).
//
//   labels, step ── SampleClasses ─┬─ classes ── TakeRows of weight, of bias ──┐
//   x ─────────────────────────────┼────────────────────────────────────────── Gemm ── z ─┐
//                                  └─ position, log_expected ── SampledSoftmaxCrossEntropyLoss
//
// Only the rows that were taken have gradients, and only they are updated: nothing of a step is as
// large as the head. Of several ranks all draw the same classes, and take the rows of all ranks'
// labels, so that one gradient of these rows is exchanged as any other. The micro-batches of a step
// share its draws, and the rows of all their labels.
#pragma once

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/models/model_spec.h"
#include "src/parallel/taken_rows.h"

namespace trainyard {

struct SampledModel {
  Model model;         // without an output: nothing computes the scores of all classes
  TakenTables tables;  // the head's
};

/// `model` as it was built, with its loss. Refuses, by model.loss, a head that is no dense layer of
/// its own, and what of the recipe does not go with single rows of it.
Result<SampledModel> sample_head(const Model& model, const Recipe& recipe, Rank rank);

}  // namespace trainyard
