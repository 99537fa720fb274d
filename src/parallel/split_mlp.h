// src/parallel/split_mlp.h: pairs of dense layers with an activation between them, split by hidden
// unit over the ranks that train a model together (resources.shard: mlp; Shoeybi et al.,
// "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019).
//
//   x ── GatherRows ── Gemm ── activation ── Gemm ── ScatterRows ── Add ── y
//            rows of w1, and b1,        columns of w2            b2, whole
//            of this rank's units       for these units
//
// Each rank stores 1/N of the units between the two layers, rounded up: their rows of w1 and
// columns of w2, with gradients and optimizer state. It computes its units for all ranks' rows. The
// gradients of these weights are complete on their rank, so they are not exchanged; y and the
// gradient of x are summed over the ranks, and each rank gets its rows (src/ops/row_exchange.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/models/model_spec.h"

namespace trainyard {

/// Two layers that are split, identified by their nodes' names.
struct SplitPair {
  std::string first, second;
  std::vector<std::string> weights;  // names of the sharded weights
  int64_t units = 0;                 // number of units between the two layers
  bool operator==(const SplitPair&) const = default;
};

struct SplitMlp {
  Model model;
  std::vector<SplitPair> pairs;
};

/// `model` must not be differentiated yet; its head may already be split. Pairs are searched in
/// graph order, and no layer belongs to two pairs. A pair is split where that saves memory:
///
///   copies P > R (2 D + D')
///
/// P: weights of the pair, for each of which a rank stores `copies` numbers (weight, gradient,
/// optimizer state). R: rows of all ranks in a micro-batch. D: inputs, D': outputs. The left side
/// is the memory that splitting saves, the right side what it adds while the pair's gradients are
/// computed: x, its gradient and that of y for the rows of other ranks. Both sides omit the same
/// factor, 1 - 1/N. Refuses, naming resources.shard, a model without such a pair.
Result<SplitMlp> split_mlp(const Model& model, Rank rank, int64_t copies);

/// Splits the same pairs in a model that is built to evaluate.
Model split_mlp(const Model& model, Rank rank, const std::vector<SplitPair>& pairs);

/// Returns the name of the layer to which a split node belongs; a product over the positions of a
/// sequence is a node inside its layer.
std::string layer_of(std::string_view node_name);

/// Returns the numbers that a device stores per weight: the weight, its gradient, optimizer state,
/// and its moving average.
int64_t kept_copies(const Recipe& recipe);

}  // namespace trainyard
