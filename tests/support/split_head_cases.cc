// Cases of one rank's part of a head whose classes are split over several ranks
// (src/ops/split_xent.h), and of the table that an embedding and that head share
// (src/ops/gather.h). The other ranks' numbers are invented; split_head_ranks_test.cc tests the
// ranks together.
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

/// Looks up `split.rows` tokens in each of two rows.
CaseGraph split_gather(DType dtype, const Split& s, int64_t width) {
  CaseBuilder b(dtype);
  const int64_t rows = classes_of_rank(s.classes, s.ranks);
  Attributes attributes{{kRank, s.rank}, {kRanks, s.ranks}};
  const TensorId tokens = b.tokens("tokens", {2, s.rows}, s.classes, Spread::kGathered);
  b.one("y", "SplitGather", attributes,
        {b.input("table", {rows, width}, Spread::kClasses), tokens});
  attributes.set("shape", std::vector<int64_t>{rows, width});
  b.node("grad", "SplitGatherGrad", std::move(attributes),
         {tokens, b.input("dy", {2, s.rows, width}, Spread::kGathered)}, 1, Phase::kBackward);
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
  for (const int64_t rank : {0, 1}) {
    cases.push_back(
        {"SplitSoftmaxCrossEntropyLoss/uncounted" + std::to_string(rank), [=](DType t) {
           return with_uncounted(split_loss(t, {9, 11, rank, 2}, {{"label_smoothing", 0.25}}));
         }});
  }
  row("rows", {1100, 6, 1, 2}, {}, true);
  row("warps", {9, 264, 1, 2}, {{"label_smoothing", 0.25}}, true);
  row("few_long", {3, 602, 0, 2}, {{"label_smoothing", 0.25}}, true);
  row("longer", {2, 2055, 1, 2}, {}, true);
  const auto lookup = [&](const char* name, const Split& split, int64_t width,
                          bool is_large = false) {
    cases.push_back({std::string("SplitGather/") + name,
                     [=](DType t) { return split_gather(t, split, width); }, is_large});
  };
  lookup("one", {1, 2, 0, 2}, 1);
  lookup("first", {7, 11, 0, 2}, 5);
  lookup("last", {7, 11, 1, 2}, 5);
  lookup("fours", {9, 32, 2, 4}, 8);
  lookup("empty", {6, 5, 3, 4}, 3);
  lookup("one_row_each", {40, 2, 1, 2}, 4);                 // all tokens of the rank are of one row
  lookup("as_many_as_a_digit", {130, 511, 0, 2}, 4, true);  // other ranks' rows: number 256
  lookup("many", {700, 1400, 1, 3}, 7, true);
}

}  // namespace trainyard::testing
