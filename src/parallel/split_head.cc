#include "src/parallel/split_head.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/graph/op.h"
#include "src/ops/gather.h"
#include "src/ops/row_exchange.h"
#include "src/ops/shards.h"
#include "src/ops/split_xent.h"
#include "src/parallel/model_head.h"

namespace trainyard {
namespace {

// Exchange numbers (src/ops/shards.h) beyond those of gradient buckets. The gradient of an exchange
// has the next number, so the numbers advance by two.
constexpr int64_t kRowsExchange = int64_t{1} << 30, kStatisticsExchange = kRowsExchange + 2,
                  kTokensExchange = kRowsExchange + 4, kVectorsExchange = kRowsExchange + 6;

class Splitter final : public HeadReplacement {
 public:
  Splitter(const Model& model, const ModelHead& head, Rank rank)
      : HeadReplacement(model, head), rank_(rank) {
    classes_ = tensor(gemm().inputs[1]).type.shape[0];
  }

  SplitModel split() { return {run(), classes_}; }

 private:
  bool is_of_head(TensorId id) const {
    return std::find(gemm().inputs.begin() + 1, gemm().inputs.end(), id) != gemm().inputs.end();
  }

  TensorInfo info_of(TensorId id) const override {
    TensorInfo info = tensor(id);
    if (!is_of_head(id)) return info;
    std::vector<int64_t> dims(info.type.shape.dims().begin(), info.type.shape.dims().end());
    dims[0] = classes_of_rank(classes_, rank_.count);
    info.shard_of = info.type.shape;
    info.type.shape = Shape(std::move(dims));
    info.spread = Spread::kClasses;
    return info;
  }

  TensorId add_head() override {
    const Node& node = gemm();
    std::vector<TensorId> rows = {copy_of(node.inputs[0])};
    std::vector<std::string> names = {node.name + "/rows"};
    if (has_loss()) {
      const TensorId labels = loss().inputs[1];
      rows.push_back(copy_of(labels));
      names.push_back(tensor(labels).name + "/rows");
    }
    const std::vector<TensorId> gathered =
        add(node.name + "/gather", *gather_rows_op(),
            {{"bucket", kRowsExchange}, {kRanks, rank_.count}}, std::move(rows), std::move(names));
    if (gathered.size() > 1) labels_ = gathered[1];
    std::vector<TensorId> inputs = {gathered[0]};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoTensor) inputs.push_back(copy_of(node.inputs[i]));
    }
    scores_ = add(node.name, *node.op, node.attributes, std::move(inputs),
                  {tensor(node.outputs[0]).name})[0];
    return scores_;
  }

  TensorId add_lookup() override {
    const Node& node = lookup();
    const TensorId tokens = node.inputs[1];
    const std::string& name = tensor(node.outputs[0]).name;
    const TensorId rows = add(node.name + "/gather", *gather_rows_op(),
                              {{"bucket", kTokensExchange}, {kRanks, rank_.count}},
                              {copy_of(tokens)}, {node.name + "/tokens"})[0];
    const TensorId summand =
        add(node.name, *split_gather_op(), {{kRank, rank_.index}, {kRanks, rank_.count}},
            {copy_of(node.inputs[0]), rows}, {name + "/summand"})[0];
    return add(node.name + "/scatter", *scatter_rows_op(),
               {{"bucket", kVectorsExchange}, {kRanks, rank_.count}, {"factor", 1.0}}, {summand},
               {name})[0];
  }

  TensorId add_loss() override {
    const Node& node = loss();
    Attributes attributes = node.attributes;
    attributes.set("classes", classes_);
    attributes.set(kRank, rank_.index);
    attributes.set(kRanks, rank_.count);
    const std::vector<TensorId> of_classes =
        add(node.name + "/class_softmax", *class_softmax_op(), attributes, {scores_, labels_},
            {node.name + ".statistics", node.name + ".class_prob"});
    const TensorId statistics = add(node.name + "/gather", *gather_rows_op(),
                                    {{"bucket", kStatisticsExchange}, {kRanks, rank_.count}},
                                    {of_classes[0]}, {node.name + ".statistics/rows"})[0];
    return add(node.name, *split_xent_op(), attributes, {of_classes[1], labels_, statistics},
               {tensor(node.outputs[0]).name, tensor(node.outputs[1]).name})[0];
  }

  const Rank rank_;
  int64_t classes_ = 0;
  TensorId labels_ = kNoTensor, scores_ = kNoTensor;
};

}  // namespace

Result<SplitModel> split_head(const Model& model, Rank rank) {
  const HeadUse use{"resources.shard", "head", "shard: optimizer or none", true};
  ASSIGN_OR_RETURN(const ModelHead head, find_head(model, use));
  return Splitter(model, head, rank).split();
}

}  // namespace trainyard
