#include "src/parallel/model_head.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/gather.h"
#include "src/ops/gemm.h"
#include "src/ops/reshape.h"
#include "src/ops/softmax_xent.h"

namespace trainyard {
namespace {

class HeadFinder {
 public:
  HeadFinder(const Model& model, const HeadUse& use)
      : model_(model), graph_(model.graph), use_(use), readers_(readers_of(model.graph)) {}

  Result<ModelHead> find() const {
    ModelHead head;
    TensorId scores = model_.output;
    if (model_.loss != kNoTensor) {
      head.loss = graph_.tensor(model_.loss).producer;
      const Node& loss = graph_.node(head.loss);
      if (loss.op != softmax_xent_op()) {
        return use_.refuse("splits the classes of a softmax cross-entropy, and the loss is " +
                           std::string(loss.op->type()));
      }
      if (graph_.tensor(loss.inputs[1]).type.dtype != DType::kI32) {
        return use_.refuse(
            "needs one label for each row, and recipe.augmentation mixes the classes of rows");
      }
      scores = loss.inputs[0];
    }
    if (Status s = find_gemm(scores, head); !s.ok()) return std::move(s).error();
    return head;
  }

 private:
  Status find_gemm(TensorId scores, ModelHead& head) const {
    while (graph_.tensor(scores).producer != kNoNode) {
      const NodeId k = graph_.tensor(scores).producer;
      const Node& node = graph_.node(k);
      if (!is_read_within(scores, head)) {
        return use_.refuse("needs scores that nothing but the loss reads");
      }
      if (node.op == gemm_op()) {
        head.gemm = k;
        return check_weights(k, head);
      }
      if (node.op != reshape_op()) {
        return use_.refuse(
            "needs a gemm or linear layer as the model's last layer, without "
            "recipe.lora on it, and " +
            node.name + " is a " + std::string(node.op->type()));
      }
      head.reshapes.insert(k);
      scores = node.inputs[0];
    }
    return use_.refuse("needs a gemm or linear layer as the model's last layer");
  }
  bool is_read_within(TensorId id, const ModelHead& head) const {
    return std::ranges::all_of(readers_[static_cast<size_t>(id)], [&](NodeId k) {
      return k == head.loss || head.reshapes.contains(k);
    });
  }
  Status check_weights(NodeId k, ModelHead& head) const {
    const Node& gemm = graph_.node(k);
    for (size_t i = 1; i < gemm.inputs.size(); ++i) {
      if (gemm.inputs[i] == kNoTensor) continue;
      const TensorInfo& w = graph_.tensor(gemm.inputs[i]);
      if (w.role != Role::kParameter) {
        return use_.refuse("needs weights of its own, and " + gemm.name + " computes " + w.name);
      }
      for (const NodeId reader : readers_[static_cast<size_t>(gemm.inputs[i])]) {
        if (reader == k) continue;
        const bool is_taken = use_.accepts_tied && head.lookup == kNoNode &&
                              graph_.node(reader).op == gather_op() && i == 1;
        if (!is_taken) return refuse_reader(w, reader, head);
        head.lookup = reader;
      }
    }
    return {};
  }
  /// `head.lookup` is an embedding that also reads the table, and is allowed to.
  Error refuse_reader(const TensorInfo& weight, NodeId reader, const ModelHead& head) const {
    std::string why = "needs weights of its own";
    if (use_.accepts_tied) why += ", or a table that one embedding reads";
    why += ", and " + weight.name + " is read by ";
    if (head.lookup != kNoNode) why += graph_.node(head.lookup).name + " and ";
    return use_.refuse(why + graph_.node(reader).name + " too");
  }

  const Model& model_;
  const Graph& graph_;
  const HeadUse& use_;
  const std::vector<std::vector<NodeId>> readers_;  // by tensor
};

}  // namespace

Error HeadUse::refuse(const std::string& why) const {
  return field_error("FIELD_CONFLICT", field, name + " " + why + ", expected " + expected);
}

Result<ModelHead> find_head(const Model& model, const HeadUse& use) {
  return HeadFinder(model, use).find();
}

Model HeadReplacement::run() {
  copy_sources();
  TensorId scores = kNoTensor, loss = kNoTensor;
  for (NodeId k = 0; k < std::ssize(graph_.nodes()); ++k) {
    if (k == head_.gemm) {
      scores = add_head();
    } else if (k == head_.lookup) {
      copies_[graph_.node(k).outputs[0]] = add_lookup();
    } else if (k == head_.loss) {
      loss = add_loss();
    } else if (!head_.reshapes.contains(k)) {
      copy(k);
    }
  }
  // If reshapes follow the head, the output tensor is not the dense layer's own.
  copies_[from_.output] = scores;
  if (has_loss()) copies_[from_.loss] = loss;
  return finish();
}

TensorId HeadReplacement::add_lookup() {
  TRAINYARD_CHECK(false, "a table that is tied to the head was refused");
  return kNoTensor;
}

}  // namespace trainyard
