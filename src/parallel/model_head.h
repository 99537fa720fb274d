// src/parallel/model_head.h: the last layer of a model and its loss, found in the graph as it was
// built, before it is differentiated; and the model once more with others in their place.
#pragma once

#include <set>
#include <string>

#include "src/base/result.h"
#include "src/parallel/model_copy.h"

namespace trainyard {

struct ModelHead {
  NodeId gemm = kNoNode;
  NodeId loss = kNoNode;      // none where the model only evaluates
  NodeId lookup = kNoNode;    // the embedding whose table the head multiplies with too, if any
  std::set<NodeId> reshapes;  // between the two, and behind the head
};

/// Who asks for a head, for refusals: FIELD_CONFLICT of `field`, "head needs ..., expected shard:
/// none".
struct HeadUse {
  std::string field;        // "resources.shard"
  std::string name;         // "head"
  std::string expected;     // "shard: optimizer or none"
  bool takes_tied = false;  // a table that an embedding reads too

  Error refuse(const std::string& why) const;
};

/// Refuses a head that is no dense layer with weights of its own (or, if that is taken, a table
/// that nothing reads but the head and one embedding), and a loss that is no softmax cross-entropy
/// of labels.
Result<ModelHead> find_head(const Model& model, const HeadUse& use);

/// The model with another head and loss, and another lookup where the head has one.
class HeadReplacement : protected ModelCopy {
 public:
  HeadReplacement(const HeadReplacement&) = delete;
  HeadReplacement& operator=(const HeadReplacement&) = delete;

 protected:
  HeadReplacement(const Model& model, const ModelHead& head) : ModelCopy(model), head_(head) {}

  /// Copies everything else. add_head() stands where the dense layer stood, and says what is the
  /// model's output from now on, kNoTensor: none; add_loss() where the loss stood.
  Model run();
  virtual TensorId add_head() = 0;
  virtual TensorId add_loss() = 0;
  /// Where the embedding stood whose table the head has; the vectors of its tokens.
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
