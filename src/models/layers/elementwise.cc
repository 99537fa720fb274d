// Elementwise layers: activations, dropout.
#include "src/base/philox.h"
#include "src/models/layer.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

void complete_gelu(Attributes& a) { a.set("approximate", a.get_string("approximate", "none")); }

// Outside training, dropout is the identity, which needs no node.
Outputs build_dropout(LayerBuilder& b, const ResolvedLayer& layer,
                      std::span<const TensorId> inputs) {
  const double ratio = layer.attributes.get_float("ratio", 0);
  if (!b.options().training || ratio == 0) return {{inputs[0]}};
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "Dropout",
                                                {{"ratio", ratio},
                                                 {"seed", static_cast<int64_t>(b.options().seed)},
                                                 {"stream", int64_t{stream_of(layer.name)}}},
                                                {inputs[0], b.step()}));
  return {{y}};
}

// Far above any sensible constant, and far from overflow.
constexpr double kConstantMax = 1e30;

AttributeRule constant_rule(std::string_view name) {
  return real_rule(name, false, {.min = -kConstantMax, .max = kConstantMax});
}
AttributeRule positive_rule(std::string_view name) {
  return real_rule(name, false, {.max = kConstantMax, .min_excluded = true});
}

Outputs build_clip(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  if (layer.attributes.items().empty()) {
    return LayerBuilder::required_error(layer, "min", "or max is required, or both");
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Clip", layer.attributes, {inputs[0]}));
  return {{y}};
}

}  // namespace

std::vector<LayerKind> elementwise_layers() {
  return {{.op = "Relu", .field = "relu"},
          {.op = "Sigmoid", .field = "sigmoid"},
          {.op = "Tanh", .field = "tanh"},
          {.op = "Gelu",
           .field = "gelu",
           .attributes = {choice_rule("approximate", {"none", "tanh"})},
           .complete = complete_gelu},
          {.op = "LeakyRelu", .field = "leaky_relu", .attributes = {constant_rule("alpha")}},
          {.op = "ThresholdedRelu",
           .field = "thresholded_relu",
           .attributes = {constant_rule("alpha")}},
          {.op = "Elu", .field = "elu", .attributes = {constant_rule("alpha")}},
          {.op = "Selu",
           .field = "selu",
           .attributes = {constant_rule("alpha"), constant_rule("gamma")}},
          {.op = "Celu", .field = "celu", .attributes = {positive_rule("alpha")}},
          {.op = "Softplus", .field = "softplus"},
          {.op = "Softsign", .field = "softsign"},
          {.op = "HardSigmoid",
           .field = "hard_sigmoid",
           .attributes = {constant_rule("alpha"), constant_rule("beta")}},
          {.op = "HardSwish", .field = "hard_swish"},
          {.op = "Swish", .field = "swish", .attributes = {constant_rule("alpha")}},
          {.op = "Mish", .field = "mish"},
          {.op = "Neg", .field = "neg"},
          {.op = "Abs", .field = "abs"},
          {.op = "Exp", .field = "exp"},
          {.op = "Log", .field = "log"},
          {.op = "Sqrt", .field = "sqrt"},
          {.op = "Reciprocal", .field = "reciprocal"},
          {.op = "Clip",
           .field = "clip",
           .attributes = {constant_rule("min"), constant_rule("max")},
           .build = build_clip},
          {.op = "Dropout",
           .field = "dropout",
           .attributes = {real_rule("ratio", true, {.max = 1, .max_excluded = true})},
           .build = build_dropout}};
}

}  // namespace trainyard
