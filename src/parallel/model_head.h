// src/parallel/model_head.h: finds the last layer of a model and its loss in the graph before
// differentiation, and copies the model with other nodes in their place.
#pragma once

#include <set>
#include <string>

#include "src/base/result.h"
#include "src/parallel/model_copy.h"

namespace trainyard {

struct ModelHead {
  NodeId gemm = kNoNode;
  NodeId loss = kNoNode;      // none if the model is built to evaluate
  NodeId lookup = kNoNode;    // the embedding that shares the head's table, if any
  std::set<NodeId> reshapes;  // between the head and the loss, and after the head
};

/// The feature that needs a head, for error messages: FIELD_CONFLICT of `field`, "head needs ...,
/// expected shard: none".
struct HeadUse {
  std::string field;          // e.g. "resources.shard"
  std::string name;           // e.g. "head"
  std::string expected;       // e.g. "shard: optimizer or none"
  bool accepts_tied = false;  // accepts a table that an embedding reads too

  Error refuse(const std::string& why) const;
};

/// Refuses a head that is not a dense layer with weights of its own, and a loss that is not the
/// softmax cross-entropy of labels. If `use.accepts_tied`, one embedding may read the head's table
/// too.
Result<ModelHead> find_head(const Model& model, const HeadUse& use);

/// Copies a model with another head and loss, and with another embedding lookup if the head shares
/// its table.
class HeadReplacement : protected ModelCopy {
 public:
  HeadReplacement(const HeadReplacement&) = delete;
  HeadReplacement& operator=(const HeadReplacement&) = delete;

 protected:
  HeadReplacement(const Model& model, const ModelHead& head) : ModelCopy(model), head_(head) {}

  /// Copies all other nodes. add_head() is called at the position of the dense layer and returns
  /// the model's new output, or kNoTensor if it has none. add_loss() is called at the position of
  /// the loss.
  Model run();
  virtual TensorId add_head() = 0;
  virtual TensorId add_loss() = 0;
  /// Called at the position of the embedding that shares the head's table; returns the vectors of
  /// its tokens.
  virtual TensorId add_lookup();

  const Node& gemm() const { return graph_.node(head_.gemm); }
  const Node& loss() const { return graph_.node(head_.loss); }
  const Node& lookup() const { return graph_.node(head_.lookup); }
  bool has_loss() const { return head_.loss != kNoNode; }
  const TensorInfo& tensor(TensorId id) const { return graph_.tensor(id); }

 private:
  const ModelHead head_;
};

}  // namespace trainyard
