// Layers that work on each element by itself: activations, arithmetic, dropout.
#include "src/base/philox.h"
#include "src/models/layer.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

void complete_gelu(Attributes& a) { a.set("approximate", a.get_string("approximate", "none")); }

// Outside training dropout is the identity, and the identity is no node.
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

}  // namespace

std::vector<LayerKind> elementwise_layers() {
  return {{.op = "Relu", .field = "relu"},
          {.op = "Sigmoid", .field = "sigmoid"},
          {.op = "Tanh", .field = "tanh"},
          {.op = "Gelu",
           .field = "gelu",
           .attributes = {choice_rule("approximate", {"none", "tanh"})},
           .complete = complete_gelu},
          {.op = "Add", .field = "add", .inputs = 2, .inputs_max = 2},
          {.op = "Dropout",
           .field = "dropout",
           .attributes = {real_rule("ratio", true, {.max = 1, .max_excluded = true})},
           .build = build_dropout}};
}

}  // namespace trainyard
