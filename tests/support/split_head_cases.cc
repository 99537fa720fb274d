// One rank's part of a head whose classes lie on several ranks (src/ops/split_xent.h). The numbers
// of the other ranks are made up: what they make of a whole is a matter of
// split_head_ranks_test.cc.
#include "src/ops/shards.h"
#include "src/ops/split_xent.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {
namespace {

struct Split {
  int64_t rows, classes, rank, ranks;
};

CaseGraph split_loss(DType dtype, const Split& s, Attributes attributes) {
  CaseBuilder b(dtype);
  const int64_t width = classes_of_rank(s.classes, s.ranks);
  attributes.set("classes", s.classes);
  attributes.set(kRank, s.rank);
  attributes.set(kRanks, s.ranks);
  const TensorId z = b.input("z", {s.rows, width}, Spread::kClasses);
  const TensorId labels = b.gathered_labels("labels", s.rows, s.classes);
  const auto of_classes = b.node("softmax", "ClassSoftmax", attributes, {z, labels}, 2);
  const TensorId q = b.input("q", {s.rows, width}, Spread::kClasses);
  const TensorId all = b.class_statistics("all", s.ranks * s.rows);
  const auto loss = b.node("loss", "SplitSoftmaxCrossEntropyLoss", attributes, {q, labels, all}, 2);
  b.node("own_loss", "SplitSoftmaxCrossEntropyLoss", attributes, {of_classes[1], labels, all}, 2);
  b.node("grad", "SplitSoftmaxCrossEntropyLossGrad", attributes,
         {loss[1], labels, b.input("dloss", {1})}, 1, Phase::kBackward);
  return b.finish_update();
}

}  // namespace

void append_split_head_cases(std::vector<GraphCase>& cases) {
  std::vector<double> weights(11);
  for (size_t k = 0; k < weights.size(); ++k) weights[k] = 0.25 * static_cast<double>(k);
  const auto row = [&](const char* name, const Split& split, const Attributes& attributes = {},
                       bool is_large = false) {
    cases.push_back({std::string("SplitSoftmaxCrossEntropyLoss/") + name,
                     [=](DType t) { return split_loss(t, split, attributes); }, is_large});
  };
  row("one", {1, 2, 0, 2});
  row("whole", {9, 11, 0, 2});
  row("last", {9, 11, 1, 2});
  row("fours", {6, 32, 2, 4});
  row("empty", {9, 5, 3, 4});
  row("smooth", {9, 11, 1, 2}, {{"label_smoothing", 0.25}});
  row("all", {13, 11, 3, 4},
      {{"label_smoothing", 0.125}, {"class_weights", weights}, {"ignore_index", int64_t{3}}});
  row("none_counts", {1, 2, 0, 2}, {{"ignore_index", int64_t{1}}});
  row("rows", {1100, 6, 1, 2}, {}, true);
  row("warps", {9, 264, 1, 2}, {{"label_smoothing", 0.25}}, true);
  row("few_long", {3, 602, 0, 2}, {{"label_smoothing", 0.25}}, true);
  row("longer", {2, 2055, 1, 2}, {}, true);
}

}  // namespace trainyard::testing
