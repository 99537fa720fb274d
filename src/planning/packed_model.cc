#include "src/planning/packed_model.h"

#include <algorithm>
#include <array>

#include "src/base/text.h"
#include "src/graph/op.h"

namespace trainyard {
namespace {

/// The ops that read several places of a row and do not know documents.
constexpr std::array<std::string_view, 5> kAlongTheRow = {"LSTM", "GRU", "RNN", "SequencePool",
                                                          "Conv"};

/// Returns whether a node passes information from one document to another.
bool mixes_documents(const Model& model, const Node& node) {
  const std::string_view type = node.op->type();
  if (type == "Attention") {
    return std::ranges::find(node.inputs, model.positions) == node.inputs.end();
  }
  return std::ranges::find(kAlongTheRow, type) != kAlongTheRow.end();
}

}  // namespace

Status check_packed_model(const Model& model) {
  for (const Node& node : model.graph.nodes()) {
    if (!mixes_documents(model, node)) continue;
    return field_error("MODEL_UNSUPPORTED", "recipe.packing",
                       "the model's layer " + quoted_value(node.name) + " (" +
                           std::string(node.op->type()) +
                           ") would mix the documents of a row; expected attention that is causal, "
                           "or recipe.packing: false, which gives each document a row of its own");
  }
  return {};
}

}  // namespace trainyard
