// Normalization layers.
#include "src/models/layer.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

void complete_batch_norm(Attributes& a) {
  a.set("epsilon", a.get_float("epsilon", 1e-5));
  a.set("momentum", a.get_float("momentum", 0.9));
}

Outputs build_batch_norm(LayerBuilder& b, const ResolvedLayer& layer,
                         std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  const int64_t channels = b.shape(x)[1];
  const TensorId scale = b.add_constant(layer, "weight", channels, Role::kParameter, 1);
  const TensorId bias = b.add_constant(layer, "bias", channels, Role::kParameter, 0);
  const TensorId mean = b.add_constant(layer, "running_mean", channels, Role::kState, 0);
  const TensorId var = b.add_constant(layer, "running_var", channels, Role::kState, 1);
  const bool training = b.options().training;
  Attributes attributes = layer.attributes;
  attributes.set("training_mode", int64_t{training ? 1 : 0});
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "BatchNormalization", std::move(attributes),
                              {x, scale, bias, mean, var},
                              training ? std::vector<std::string>{"saved_mean", "saved_inv_std"}
                                       : std::vector<std::string>{"", ""}));
  return {{y}};
}

// Builds GroupNormalization with num_groups groups, or InstanceNormalization, where each channel is
// a group.
Outputs build_group_norm(LayerBuilder& b, const ResolvedLayer& layer,
                         std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  if (b.shape(x).rank() < 2) {
    return LayerBuilder::shape_error(
        layer, "needs channels [N, C, ...], but its input is " + b.shape(x).to_string());
  }
  const int64_t channels = b.shape(x)[1];
  const TensorId scale = b.add_constant(layer, "weight", channels, Role::kParameter, 1);
  const TensorId bias = b.add_constant(layer, "bias", channels, Role::kParameter, 0);
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, layer.kind->op, layer.attributes, {x, scale, bias},
                              b.options().training ? std::vector<std::string>{"mean", "inv_std"}
                                                   : std::vector<std::string>{"", ""}));
  return {{y}};
}

void complete_group_norm(Attributes& a) { a.set("epsilon", a.get_float("epsilon", 1e-5)); }

}  // namespace

std::vector<LayerKind> normalization_layers() {
  const AttributeRule epsilon = real_rule("epsilon", false, {.max = 1, .min_excluded = true});
  return {{.op = "GroupNormalization",
           .field = "group_normalization",
           .attributes = {integer_rule("num_groups", true, 1, kChannelsMax), epsilon},
           .complete = complete_group_norm,
           .build = build_group_norm},
          {.op = "InstanceNormalization",
           .field = "instance_normalization",
           .attributes = {epsilon},
           .complete = complete_group_norm,
           .build = build_group_norm},
          {.op = "BatchNormalization",
           .field = "batch_normalization",
           .attributes = {epsilon, real_rule("momentum", false, {.max = 1})},
           .complete = complete_batch_norm,
           .build = build_batch_norm}};
}

}  // namespace trainyard
