// src/train/model_head.h: the last layer of a model and its loss, found in the graph as it was
// built, before it is differentiated; and the model once more with others in their place.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct ModelHead {
  NodeId gemm = kNoNode;
  NodeId loss = kNoNode;      // none where the model only evaluates
  std::set<NodeId> reshapes;  // between the two, and behind the head
};

/// Who asks for a head, for refusals: FIELD_CONFLICT of `field`, "head needs ..., expected shard:
/// none".
struct HeadUse {
  std::string field;     // "resources.shard"
  std::string name;      // "head"
  std::string expected;  // "shard: optimizer or none"

  Error refuse(const std::string& why) const;
};

/// Refuses a head that is no dense layer with weights of its own, and a loss that is no softmax
/// cross-entropy of labels.
Result<ModelHead> find_head(const Model& model, const HeadUse& use);

/// The model, node by node, in another graph, with another head and loss.
class HeadReplacement {
 public:
  HeadReplacement(const Model& model, const ModelHead& head)
      : from_(model), graph_(model.graph), head_(head) {}
  virtual ~HeadReplacement() = default;
  HeadReplacement(const HeadReplacement&) = delete;
  HeadReplacement& operator=(const HeadReplacement&) = delete;

 protected:
  /// Copies everything else. add_head() stands where the dense layer stood, and says what is the
  /// model's output from now on, kNoTensor: none; add_loss() where the loss stood.
  Model run();
  virtual TensorId add_head() = 0;
  virtual TensorId add_loss() = 0;
  /// Of a tensor that no node computes.
  virtual TensorInfo info_of(TensorId id) const { return graph_.tensor(id); }

  const Node& gemm() const { return graph_.node(head_.gemm); }
  const Node& loss() const { return graph_.node(head_.loss); }
  bool has_loss() const { return head_.loss != kNoNode; }
  const TensorInfo& tensor(TensorId id) const { return graph_.tensor(id); }
  /// The other graph's.
  TensorId copy_of(TensorId id) const { return id == kNoTensor ? id : copies_.at(id); }
  /// Appends a node to it and returns its outputs.
  std::vector<TensorId> add(std::string name, const Op& op, Attributes attributes,
                            std::vector<TensorId> inputs, std::vector<std::string> outputs);

  Model to_;

 private:
  void copy(NodeId k);

  const Model& from_;
  const Graph& graph_;
  const ModelHead head_;
  std::map<TensorId, TensorId> copies_;
};

}  // namespace trainyard
