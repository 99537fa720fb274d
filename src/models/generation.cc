#include "src/models/generation.h"

#include <algorithm>
#include <array>

#include "src/graph/op.h"

namespace trainyard {
namespace {

// Layers that compute each position from the same position alone, whatever their attributes.
constexpr auto kPointwise = std::to_array<std::string_view>(
    {"Abs",    "Add",        "Celu",  "Clip", "Constant",       "Div",       "Dropout",
     "Elu",    "Embedding",  "Exp",   "Gelu", "HardSigmoid",    "HardSwish", "LeakyRelu",
     "Linear", "Log",        "Max",   "Min",  "Mish",           "Mul",       "Neg",
     "Pow",    "Reciprocal", "Relu",  "Selu", "Sigmoid",        "Softplus",  "Softsign",
     "Sqrt",   "Sub",        "Swish", "Tanh", "ThresholdedRelu"});

bool keeps_positions_apart(const ResolvedLayer& layer) {
  const std::string_view op = layer.kind->op;
  const Attributes& a = layer.attributes;
  if (op == "Attention") return a.get_int("is_causal", 0) != 0;
  if (op == "PositionEmbedding") return a.get_int("class_token", 0) == 0;
  if (op == "LayerNormalization" || op == "RMSNormalization" || op == "Softmax" ||
      op == "LogSoftmax") {
    const int64_t axis = a.get_int("axis", -1);
    return axis == -1 || axis >= 2;
  }
  // For the heads of a position, [-1, heads, width]; check_positions() finds all other uses.
  if (op == "Reshape") return a.get_ints("shape", {0}).front() == -1;
  if (op == "RotaryEmbedding") return layer.inputs.size() == 1;  // tables are for whole texts
  return std::ranges::find(kPointwise, op) != kPointwise.end();
}

/// Adds a cache for rows like those of `update` [N, T, W] and the node that writes it.
Result<TensorId> add_cache(LayerBuilder& b, const ResolvedLayer& layer, std::string_view name,
                           TensorId update) {
  const Shape& shape = b.shape(update);
  const Shape whole = {shape[0], b.options().generation.capacity, shape[2]};
  if (!whole.fits()) {
    return LayerBuilder::shape_error(layer, "its cache would have shape " + whole.to_string() +
                                                ", more than " +
                                                std::to_string(Shape::kElementsMax) + " elements");
  }
  const TensorId cache = b.add_tensor(layer.name + "." + std::string(name), whole,
                                      b.options().dtype, Role::kCache, {});
  const Result<NodeId> node =
      b.model().graph.add_node(layer.name + "/" + std::string(name), get_op("TensorScatter"), {},
                               {cache, update, b.positions()}, {});
  if (!node.ok()) return node.error();
  return cache;
}

/// Returns query, key and value of a packed input, [N, T, (H + 2 Hkv) * D].
Result<std::vector<TensorId>> unpacked(LayerBuilder& b, const ResolvedLayer& layer, TensorId packed,
                                       const Attributes& attributes) {
  const int64_t heads = attributes.get_int("q_num_heads", 1);
  const int64_t kv_heads = attributes.get_int("kv_num_heads", heads);
  const int64_t width = b.shape(packed)[2], parts = heads + 2 * kv_heads;
  if (width % parts != 0) {
    return LayerBuilder::shape_error(layer, "q_num_heads: the width " + std::to_string(width) +
                                                " of its input is not a multiple of the " +
                                                std::to_string(parts) +
                                                " heads of query, key and value");
  }
  const int64_t head = width / parts;
  const std::vector<int64_t> sizes = {heads * head, kv_heads * head, kv_heads * head};
  const std::string name = layer.name + "/parts";
  const Result<NodeId> node =
      b.model().graph.add_node(name, get_op("Split"), {{"axis", int64_t{2}}, {"split", sizes}},
                               {packed}, {name, name + ".1", name + ".2"});
  if (!node.ok()) return node.error();
  return b.graph().node(*node).outputs;
}

Error needs_whole_text(const ResolvedLayer& layer) {
  Error e = make_error(ErrorCode::kFailedPrecondition, std::string(kGenerationUnsupported),
                       layer.where +
                           ": needs the whole text, so that its keys and values cannot "
                           "be kept");
  e.violations = {{layer.path, e.message}};
  return e;
}

}  // namespace

Status check_generation(const ResolvedLayer& layer) {
  if (keeps_positions_apart(layer)) return {};
  return needs_whole_text(layer);
}

Status check_positions(LayerBuilder& b, const ResolvedLayer& layer, TensorId output) {
  const Shape& shape = b.shape(output);
  if (!b.has_batch(output)) return {};  // a constant, the same for all positions
  if (shape.rank() >= 3 && shape[1] == b.options().generation.new_tokens) return {};
  if (shape.rank() == 2 && output == b.input()) return {};
  return needs_whole_text(layer);
}

Result<TensorId> add_cached_attention(LayerBuilder& b, const ResolvedLayer& layer,
                                      std::span<const TensorId> inputs, Attributes attributes) {
  std::vector<TensorId> parts(inputs.begin(), inputs.end());
  if (parts.size() == 1) {
    ASSIGN_OR_RETURN(parts, unpacked(b, layer, inputs[0], attributes));
  }
  ASSIGN_OR_RETURN(const TensorId keys, add_cache(b, layer, "key_cache", parts[1]));
  ASSIGN_OR_RETURN(const TensorId values, add_cache(b, layer, "value_cache", parts[2]));
  attributes.set("cached", int64_t{1});
  attributes.set("dropout", 0.0);
  return b.add_node(layer, layer.name, "Attention", std::move(attributes),
                    {parts[0], keys, values, kNoTensor, b.positions()}, {""});
}

}  // namespace trainyard
