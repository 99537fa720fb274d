#include "src/models/layers/padding.h"

#include "src/ops/sequence_lengths.h"

namespace trainyard {

Status check_tokens_of(const LayerBuilder& b, const ResolvedLayer& layer, TensorId x,
                       TensorId tokens) {
  const Shape expected{b.shape(x)[0], b.shape(x)[1]};
  if (b.type(tokens).dtype == DType::kI32 && b.shape(tokens) == expected) return {};
  return LayerBuilder::shape_error(
      layer, "inputs: the last one is the tokens of the sequence, expected tokens " +
                 expected.to_string() + ", but it is " +
                 (b.type(tokens).dtype == DType::kI32 ? "tokens " : "numbers ") +
                 b.shape(tokens).to_string());
}

Result<TensorId> sequence_lengths(LayerBuilder& b, const ResolvedLayer& layer, TensorId tokens) {
  for (const Node& node : b.graph().nodes()) {
    if (node.op == sequence_lengths_op() && node.inputs[0] == tokens) return node.outputs[0];
  }
  return b.add_node(layer, layer.name + "/lengths", "SequenceLengths", padding_attribute(b),
                    {tokens});
}

Attributes padding_attribute(const LayerBuilder& b) {
  const int64_t padding = b.interface().padding;
  return padding > 0 ? Attributes{{"padding_id", padding}} : Attributes{};
}

}  // namespace trainyard
