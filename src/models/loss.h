// src/models/loss.h: the losses that a model can train with, and the objective of a model. A loss
// kind describes in one place which attributes users may set and which targets it fits; its op
// implements the formula.
#pragma once

#include <string_view>
#include <vector>

#include "src/models/attribute_rule.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct LossKind {
  std::string_view op;     // "HuberLoss": the node's op; all have the inputs (output, target)
  std::string_view field;  // "huber": key in a spec file
  std::vector<TargetForm> targets;
  std::vector<AttributeRule> attributes = {};
  bool classes = false;  // softmax over scores against I32 labels; else numbers against numbers
  bool samples = false;  // the training loss samples some of the classes
};

/// If there are more classes than this, scores are not copied to the host in every step.
inline constexpr int64_t kScoresReadMax = 65536;

const std::vector<LossKind>& loss_kinds();
const LossKind* find_loss_kind(std::string_view op);

/// A model's objective: the interface of the data as the spec uses it, and a loss that fits.
struct Objective {
  ModelInterface interface;
  const LossKind* loss = nullptr;
  Attributes attributes;  // attributes of the loss, checked; `balanced` class weights are replaced
                          // by numbers

  /// Returns true if the input's pixels are scaled to [0, 1], because they are the targets of a
  /// cross-entropy; otherwise the input is standardized.
  bool unit_input() const;
  /// Returns true if a training step computes the scores of all classes and there are few enough to
  /// copy. The training loop then reports how many rows were predicted correctly.
  bool reads_scores() const;
  /// Rows with this label do not count in the loss and the metrics; -1: all rows count.
  int64_t ignored_label() const { return attributes.get_int("ignore_index", -1); }
};

/// Finds the model's objective. Refuses a loss that does not fit the target, attributes out of
/// range, and category embeddings for data without categories; reports all problems together.
Result<Objective> find_objective(const ModelSpec& spec, const ModelInterface& data);

}  // namespace trainyard
