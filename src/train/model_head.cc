#include "src/train/model_head.h"

#include <algorithm>
#include <utility>

#include "src/graph/op.h"
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
        return check_weights(node);
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
  Status check_weights(const Node& gemm) const {
    for (size_t i = 1; i < gemm.inputs.size(); ++i) {
      if (gemm.inputs[i] == kNoTensor) continue;
      const TensorInfo& w = graph_.tensor(gemm.inputs[i]);
      const std::vector<NodeId>& readers = readers_[static_cast<size_t>(gemm.inputs[i])];
      if (w.role != Role::kParameter) {
        return use_.refuse("needs weights of its own, and " + gemm.name + " computes " + w.name);
      }
      if (readers.size() > 1) {
        return use_.refuse("needs weights of its own, and " + w.name + " is read by " +
                           graph_.node(readers.front()).name +
                           " too: a table that is tied to the head "
                           "stays whole");
      }
    }
    return {};
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
    } else if (k == head_.loss) {
      loss = add_loss();
    } else if (!head_.reshapes.contains(k)) {
      copy(k);
    }
  }
  // Behind reshapes the output has another name.
  copies_[from_.output] = scores;
  if (has_loss()) copies_[from_.loss] = loss;
  return finish();
}

}  // namespace trainyard
