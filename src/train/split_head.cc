#include "src/train/split_head.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/graph/op.h"
#include "src/ops/gemm.h"
#include "src/ops/reshape.h"
#include "src/ops/row_exchange.h"
#include "src/ops/shards.h"
#include "src/ops/softmax_xent.h"
#include "src/ops/split_xent.h"
#include "src/train/model_copy.h"

namespace trainyard {
namespace {

// Numbers of exchanges (src/ops/shards.h) that no bucket of gradients comes to. The gradient of the
// first has the one behind it.
constexpr int64_t kRowsExchange = int64_t{1} << 30, kStatisticsExchange = kRowsExchange + 2;

Error refuse(const std::string& why) {
  return field_error("FIELD_CONFLICT", "resources.shard",
                     "head " + why + ", expected shard: optimizer or none");
}

/// What is replaced.
struct Head {
  NodeId gemm = kNoNode;
  NodeId loss = kNoNode;      // none where the model only evaluates
  std::set<NodeId> reshapes;  // between the two, and behind the head
};

class HeadFinder {
 public:
  explicit HeadFinder(const Model& model)
      : model_(model), graph_(model.graph), readers_(readers_of(model.graph)) {}

  Result<Head> find() const {
    Head head;
    TensorId scores = model_.output;
    if (model_.loss != kNoTensor) {
      head.loss = graph_.tensor(model_.loss).producer;
      const Node& loss = graph_.node(head.loss);
      if (loss.op != softmax_xent_op()) {
        return refuse("splits the classes of a softmax cross-entropy, and the loss is " +
                      std::string(loss.op->type()));
      }
      if (graph_.tensor(loss.inputs[1]).type.dtype != DType::kI32) {
        return refuse(
            "needs one label for each row, and recipe.augmentation mixes the classes of rows");
      }
      scores = loss.inputs[0];
    }
    if (Status s = find_gemm(scores, head); !s.ok()) return std::move(s).error();
    return head;
  }

 private:
  Status find_gemm(TensorId scores, Head& head) const {
    while (graph_.tensor(scores).producer != kNoNode) {
      const NodeId k = graph_.tensor(scores).producer;
      const Node& node = graph_.node(k);
      if (!is_read_within(scores, head)) {
        return refuse("needs scores that nothing but the loss reads");
      }
      if (node.op == gemm_op()) {
        head.gemm = k;
        return check_weights(node);
      }
      if (node.op != reshape_op()) {
        return refuse(
            "needs a gemm or linear layer as the model's last layer, without "
            "recipe.lora on it, and " +
            node.name + " is a " + std::string(node.op->type()));
      }
      head.reshapes.insert(k);
      scores = node.inputs[0];
    }
    return refuse("needs a gemm or linear layer as the model's last layer");
  }
  bool is_read_within(TensorId id, const Head& head) const {
    return std::ranges::all_of(readers_[static_cast<size_t>(id)], [&](NodeId k) {
      return k == head.loss || head.reshapes.contains(k);
    });
  }
  Status check_weights(const Node& gemm) const {
    for (size_t i = 1; i < gemm.inputs.size(); ++i) {
      if (gemm.inputs[i] == kNoTensor) continue;
      const TensorInfo& w = graph_.tensor(gemm.inputs[i]);
      const std::vector<NodeId>& readers = readers_[static_cast<size_t>(gemm.inputs[i])];
      if (w.role != Role::kParameter) {
        return refuse("needs weights of its own, and " + gemm.name + " computes " + w.name);
      }
      if (readers.size() > 1) {
        return refuse("needs weights of its own, and " + w.name + " is read by " +
                      graph_.node(readers.front()).name +
                      " too: a table that is tied to the head "
                      "stays whole");
      }
    }
    return {};
  }

  const Model& model_;
  const Graph& graph_;
  const std::vector<std::vector<NodeId>> readers_;  // by tensor
};

/// The model once more, with the other head.
class Splitter final : private ModelCopy {
 public:
  Splitter(const Model& model, const Head& head, Rank rank)
      : ModelCopy(model), head_(head), rank_(rank) {
    classes_ = graph_.tensor(gemm().inputs[1]).type.shape[0];
  }

  SplitModel run() {
    copy_sources();
    for (NodeId k = 0; k < std::ssize(graph_.nodes()); ++k) {
      if (k == head_.gemm) {
        add_head();
      } else if (k == head_.loss) {
        add_loss();
      } else if (!head_.reshapes.contains(k)) {
        copy(k);
      }
    }
    copies_[from_.output] = scores_;
    return {finish(), classes_};
  }

 private:
  const Node& gemm() const { return graph_.node(head_.gemm); }
  bool is_of_head(TensorId id) const {
    return std::find(gemm().inputs.begin() + 1, gemm().inputs.end(), id) != gemm().inputs.end();
  }

  TensorInfo info_of(TensorId id) const override {
    TensorInfo info = graph_.tensor(id);
    if (!is_of_head(id)) return info;
    std::vector<int64_t> dims(info.type.shape.dims().begin(), info.type.shape.dims().end());
    dims[0] = classes_of_rank(classes_, rank_.count);
    info.shard_of = info.type.shape;
    info.type.shape = Shape(std::move(dims));
    info.spread = Spread::kClasses;
    return info;
  }

  void add_head() {
    const Node& node = gemm();
    std::vector<TensorId> rows = {copies_.at(node.inputs[0])};
    std::vector<std::string> names = {node.name + "/rows"};
    if (head_.loss != kNoNode) {
      const TensorId labels = graph_.node(head_.loss).inputs[1];
      rows.push_back(copies_.at(labels));
      names.push_back(graph_.tensor(labels).name + "/rows");
    }
    const std::vector<TensorId> gathered =
        add(node.name + "/gather", *gather_rows_op(),
            {{"bucket", kRowsExchange}, {kRanks, rank_.count}}, std::move(rows), std::move(names));
    if (gathered.size() > 1) labels_ = gathered[1];
    std::vector<TensorId> inputs = {gathered[0]};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoTensor) inputs.push_back(copies_.at(node.inputs[i]));
    }
    scores_ = add(node.name, *node.op, node.attributes, std::move(inputs),
                  {graph_.tensor(node.outputs[0]).name})[0];
  }

  void add_loss() {
    const Node& node = graph_.node(head_.loss);
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
    const std::vector<TensorId> outputs =
        add(node.name, *split_xent_op(), attributes, {of_classes[1], labels_, statistics},
            {graph_.tensor(node.outputs[0]).name, graph_.tensor(node.outputs[1]).name});
    copies_[node.outputs[0]] = outputs[0];
  }

  const Head& head_;
  const Rank rank_;
  int64_t classes_ = 0;
  TensorId labels_ = kNoTensor, scores_ = kNoTensor;
};

}  // namespace

Result<SplitModel> split_head(const Model& model, Rank rank) {
  ASSIGN_OR_RETURN(const Head head, HeadFinder(model).find());
  return Splitter(model, head, rank).run();
}

}  // namespace trainyard
