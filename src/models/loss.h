// src/models/loss.h: the losses that a model may train by, and what a model trains for. A kind says
// in one place what a user may say about it and which targets it fits; its op has the formula.
#pragma once

#include <string_view>
#include <vector>

#include "src/models/attribute_rule.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct LossKind {
  std::string_view op;     // "HuberLoss": of the node; all take (output, target)
  std::string_view field;  // "huber": the key in a spec file
  std::vector<TargetForm> targets;
  std::vector<AttributeRule> attributes = {};
  bool classes = false;  // scores against I32 labels, by softmax; else number against number
  bool samples = false;  // while it trains, over some of the classes
};

/// Scores of more classes than this are not copied to the host in every step.
inline constexpr int64_t kScoresReadMax = 65536;

const std::vector<LossKind>& loss_kinds();
const LossKind* find_loss_kind(std::string_view op);

/// What a model trains for: what the data offers, as the spec uses it, and a loss that fits.
struct Objective {
  ModelInterface interface;
  const LossKind* loss = nullptr;
  Attributes attributes;  // of the loss, checked; `balanced` class weights are numbers

  /// True if the input's pixels go in as shares in [0, 1], because they are the targets of a
  /// cross-entropy; else the input is standardized.
  bool unit_input() const;
  /// True if a training step computes the scores of all classes, and not too many of them to look
  /// at: then the loop reports how many rows were right.
  bool reads_scores() const;
  /// Rows with this label count in no loss and no metric; -1: all count.
  int64_t ignored_label() const { return attributes.get_int("ignore_index", -1); }
};

/// Refuses a loss that does not fit the target, attributes out of range, and embeddings of
/// categories where there are none, all at once.
Result<Objective> find_objective(const ModelSpec& spec, const ModelInterface& data);

}  // namespace trainyard
