// Layers on sequences [N, T, F], and on rows of tokens [N, T].
#include <cmath>

#include "src/models/layer.h"
#include "src/models/layers/padding.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

void complete_recurrent(Attributes& a) {
  a.set("direction", a.get_string("direction", "forward"));
  a.set("bias", a.get_int("bias", 1));
}

/// Returns x with the tokens of each row in reverse order, as the value named by the layer and
/// `suffix`.
Result<TensorId> reversed(LayerBuilder& b, const ResolvedLayer& layer, std::string_view suffix,
                          TensorId x, TensorId tokens) {
  ASSIGN_OR_RETURN(const TensorId lengths, sequence_lengths(b, layer, tokens));
  return b.add_node(layer, layer.name + std::string(suffix), "ReverseSequence", {}, {x, lengths});
}

// All parameters are initialized as in PyTorch, uniform in +-1/sqrt(hidden_size). The layer's
// outputs are the sequence and the state after the last step. With tokens as a second input, the
// sequence ends at the last token that is not padding: the reverse direction begins there, by
// reading the tokens of each row in reverse order.
Outputs build_recurrent(LayerBuilder& b, const ResolvedLayer& layer,
                        std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  if (b.shape(x).rank() != 3) {
    return LayerBuilder::shape_error(
        layer, "needs sequences [N, T, F], but its input is " + b.shape(x).to_string() +
                   (b.type(x).dtype == DType::kI32 ? "; put an embedding layer before it" : ""));
  }
  const bool has_tokens = inputs.size() > 1;
  if (has_tokens) {
    if (Status s = check_tokens_of(b, layer, x, inputs[1]); !s.ok()) return std::move(s).error();
  }
  const int64_t features = b.shape(x)[2];
  const int64_t hidden = layer.attributes.get_int("hidden_size", 0);
  const int64_t rows = (layer.kind->op == "LSTM" ? 4 : 3) * hidden;
  const auto add = [&](std::string_view suffix, Shape shape) {
    return b.add_fan_in_parameter(layer, suffix, std::move(shape), hidden);
  };
  std::vector<TensorId> all = {x};
  const std::string direction = layer.attributes.get_string("direction", "forward");
  const bool turns = has_tokens && direction == "reverse";
  if (turns) {
    ASSIGN_OR_RETURN(all[0], reversed(b, layer, "/reversed", x, inputs[1]));
  }
  ASSIGN_OR_RETURN(const TensorId w, add("weight_ih", Shape{rows, features}));
  ASSIGN_OR_RETURN(const TensorId r, add("weight_hh", Shape{rows, hidden}));
  all.insert(all.end(), {w, r});
  if (layer.attributes.get_int("bias", 1) != 0) {
    ASSIGN_OR_RETURN(const TensorId wb, add("bias_ih", Shape{rows}));
    ASSIGN_OR_RETURN(const TensorId rb, add("bias_hh", Shape{rows}));
    all.insert(all.end(), {wb, rb});
  }
  Attributes attributes;
  attributes.set("hidden_size", hidden);
  attributes.set("direction", turns ? std::string("forward") : direction);
  ASSIGN_OR_RETURN(TensorId y,
                   b.add_node(layer, layer.name + (turns ? "/steps" : ""), layer.kind->op,
                              std::move(attributes), std::move(all), {"last", "gates", "state"}));
  const Graph& graph = b.model().graph;
  TensorId last = graph.node(graph.tensor(y).producer).outputs[1];
  if (!has_tokens) return {{y, last}};
  Attributes pool = padding_attribute(b);
  pool.set("mode", std::string("last"));
  ASSIGN_OR_RETURN(last, b.add_node(layer, layer.name + "/last", "SequencePool", std::move(pool),
                                    {y, inputs[1]}));
  if (turns) {
    ASSIGN_OR_RETURN(y, reversed(b, layer, "", y, inputs[1]));
  }
  return {{y, last}};
}

void complete_embedding_bag(Attributes& a) { a.set("mode", a.get_string("mode", "mean")); }

// The table is initialized as in PyTorch, normal with standard deviation 1. Padding does not count
// in the sum, so its row is never read.
Outputs build_embedding_bag(LayerBuilder& b, const ResolvedLayer& layer,
                            std::span<const TensorId> inputs) {
  const ModelInterface& interface = b.interface();
  const TensorId tokens = inputs[0];
  if (b.type(tokens).dtype != DType::kI32 || b.shape(tokens).rank() != 2) {
    return LayerBuilder::shape_error(
        layer, "needs rows of tokens [N, T], but its input is " + b.shape(tokens).to_string() +
                   (interface.vocabulary > 0 ? "; name 'input'" : " of a dataset without text"));
  }
  const int64_t width = layer.attributes.get_int("embedding_dim", 0);
  ASSIGN_OR_RETURN(const TensorId table,
                   b.add_parameter(layer, "weight", Shape{interface.vocabulary, width},
                                   {Initializer::Kind::kNormal, 0, 1}));
  Attributes attributes;
  attributes.set("mode", layer.attributes.get_string("mode", "mean"));
  attributes.set("padding_idx", interface.padding);
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "EmbeddingBag",
                                                std::move(attributes), {table, tokens}));
  return {{y}};
}

LayerKind recurrent_kind(std::string_view op, std::string_view field) {
  return {.op = op,
          .field = field,
          .inputs_max = 2,
          .attributes = {integer_rule("hidden_size", true, 1, kChannelsMax),
                         choice_rule("direction", {"forward", "reverse"}), boolean_rule("bias")},
          .complete = complete_recurrent,
          .build = build_recurrent};
}

}  // namespace

std::vector<LayerKind> text_layers() {
  return {recurrent_kind("LSTM", "lstm"),
          recurrent_kind("GRU", "gru"),
          {.op = "EmbeddingBag",
           .field = "embedding_bag",
           .attributes = {integer_rule("embedding_dim", true, 1, kChannelsMax),
                          choice_rule("mode", {"mean", "sum"})},
           .complete = complete_embedding_bag,
           .build = build_embedding_bag}};
}

}  // namespace trainyard
