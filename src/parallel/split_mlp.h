// src/parallel/split_mlp.h: pairs of dense layers with an activation between them, split by hidden
// unit over the ranks that train a model together (resources.shard: mlp; Shoeybi et al.,
// "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019).
//
//   x ── GatherRows ── Gemm ── activation ── Gemm ── ScatterRows ── Add ── y
//            rows of w1, and b1,        columns of w2            b2, whole
//            of this rank's units       for these units
//
// Each rank holds the N-th part of the units between the two layers, rounded up: of the first
// layer their rows, of the second their columns, the gradients of both and the optimizer's state;
// and computes the units of all ranks' rows. Gradients of these weights are complete there, so that
// nothing is exchanged for them; y and the gradient of x are summed over the ranks, and each gets
// its rows (src/ops/row_exchange.h).
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

/// Two layers that are split, by node name.
struct SplitPair {
  std::string first, second;
  std::vector<std::string> weights;  // that ranks have parts of, by tensor name
  int64_t units = 0;                 // between the two
  bool operator==(const SplitPair&) const = default;
};

struct SplitMlp {
  Model model;
  std::vector<SplitPair> pairs;
};

/// `model` as it was built, or with a head that is split; before it is differentiated. Pairs are
/// found from the input on, and no layer is of two. One is split where that saves memory:
///
///   copies P > R (2 D + D')
///
/// of P weights, of each of which a rank keeps `copies` numbers (itself, its gradient, state); of R
/// rows, those of all ranks in a micro-batch; of D inputs and D' outputs. To the left stands what
/// each rank no longer has, to the right what it has besides when the pair's gradients are
/// computed: x, its gradient and that of y of the others' rows; both but for the same factor, 1 -
/// 1/N. Refuses, by resources.shard, a model without such a pair.
Result<SplitMlp> split_mlp(const Model& model, Rank rank, int64_t copies);

/// The same pairs of a model that is built to evaluate.
Model split_mlp(const Model& model, Rank rank, const std::vector<SplitPair>& pairs);

/// The layer of a node that is split: positions of a sequence are rows of a product within it.
std::string layer_of(std::string_view node_name);

/// Numbers that a device keeps of each weight: itself, its gradient, the optimizer's state, and an
/// average.
int64_t kept_copies(const Recipe& recipe);

}  // namespace trainyard
