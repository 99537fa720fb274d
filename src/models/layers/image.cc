// Layers on images [N, C, H, W].
#include "src/models/layer.h"
#include "src/ops/max_pool.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

// Expands kernel_shape and strides to two entries, and pads to four. The strides of a pool default
// to its window.
void complete_window(Attributes& a, bool pool) {
  const std::vector<int64_t> kernel = spell_out(a, "kernel_shape", 2, {});
  a.set("kernel_shape", kernel);
  a.set("strides", spell_out(a, "strides", 2, pool ? kernel : std::vector<int64_t>{1, 1}));
  a.set("pads", spell_out(a, "pads", 4, {0, 0, 0, 0}));
}

void complete_conv(Attributes& a) {
  complete_window(a, false);
  a.set("bias", a.get_int("bias", 1));
  for (const char* name : {"dilations", "output_padding"}) {
    if (a.find(name) != nullptr) a.set(name, spell_out(a, name, 2, {}));
  }
}

void complete_max_pool(Attributes& a) {
  complete_window(a, true);
  if (a.find("dilations") != nullptr) a.set("dilations", spell_out(a, "dilations", 2, {}));
}

void complete_average_pool(Attributes& a) {
  complete_max_pool(a);
  a.set("count_include_pad", a.get_int("count_include_pad", 0));
}

// Copies the settings that the op shares with the layer, unless they are at their defaults.
void copy_group_and_dilations(const ResolvedLayer& layer, Attributes& attributes) {
  if (const int64_t group = layer.attributes.get_int("group", 1); group > 1) {
    attributes.set("group", group);
  }
  if (const auto dilations = layer.attributes.get_ints("dilations", {1, 1});
      dilations != std::vector<int64_t>{1, 1}) {
    attributes.set("dilations", dilations);
  }
}

Status check_group(const ResolvedLayer& layer, int64_t channels, int64_t out_channels) {
  const int64_t group = layer.attributes.get_int("group", 1);
  if (channels % group == 0 && out_channels % group == 0) return {};
  return LayerBuilder::shape_error(layer, "group: " + std::to_string(group) +
                                              ", expected a divisor of the input channels, " +
                                              std::to_string(channels) + ", and of out_channels, " +
                                              std::to_string(out_channels));
}

Outputs build_conv(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  if (Status s = b.need_image(layer, x); !s.ok()) return std::move(s).error();
  const int64_t channels = b.shape(x)[1];
  const int64_t out_channels = layer.attributes.get_int("out_channels", 0);
  const std::vector<int64_t> kernel = layer.attributes.get_ints("kernel_shape", {});
  const int64_t taps = kernel[0] * kernel[1];
  const int64_t group = layer.attributes.get_int("group", 1);
  if (Status s = check_group(layer, channels, out_channels); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const LayerBuilder::Weights w,
                   b.add_weights(layer, Shape{out_channels, channels / group, kernel[0], kernel[1]},
                                 out_channels, channels / group * taps, out_channels * taps));
  Attributes attributes;
  for (const char* name : {"kernel_shape", "strides", "pads"}) {
    attributes.set(name, layer.attributes.get_ints(name, {}));
  }
  copy_group_and_dilations(layer, attributes);
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "Conv", std::move(attributes),
                                                with_bias(x, w.weight, w.bias)));
  return {{y}};
}

Outputs build_conv_transpose(LayerBuilder& b, const ResolvedLayer& layer,
                             std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  if (Status s = b.need_image(layer, x); !s.ok()) return std::move(s).error();
  const int64_t channels = b.shape(x)[1];
  const int64_t out_channels = layer.attributes.get_int("out_channels", 0);
  const std::vector<int64_t> kernel = layer.attributes.get_ints("kernel_shape", {});
  const int64_t taps = kernel[0] * kernel[1];
  const int64_t group = layer.attributes.get_int("group", 1);
  if (Status s = check_group(layer, channels, out_channels); !s.ok()) return std::move(s).error();
  const int64_t group_out = out_channels / group;
  ASSIGN_OR_RETURN(const LayerBuilder::Weights w,
                   b.add_weights(layer, Shape{channels, group_out, kernel[0], kernel[1]},
                                 out_channels, group_out * taps, channels * taps));
  Attributes attributes;
  for (const char* name : {"kernel_shape", "strides", "pads"}) {
    attributes.set(name, layer.attributes.get_ints(name, {}));
  }
  copy_group_and_dilations(layer, attributes);
  if (const auto extra = layer.attributes.get_ints("output_padding", {0, 0});
      extra != std::vector<int64_t>{0, 0}) {
    attributes.set("output_padding", extra);
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "ConvTranspose", std::move(attributes),
                              with_bias(x, w.weight, w.bias)));
  return {{y}};
}

Outputs build_pool(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  if (Status s = b.need_image(layer, inputs[0]); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, layer.kind->op, layer.attributes, {inputs[0]}));
  return {{y}};
}

// Returns the maximum over the pixels of each channel.
Outputs build_global_max_pool(LayerBuilder& b, const ResolvedLayer& layer,
                              std::span<const TensorId> inputs) {
  if (Status s = b.need_image(layer, inputs[0]); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "ReduceMax",
                              {{"axes", std::vector<int64_t>{2, 3}}}, {inputs[0]}));
  return {{y}};
}

// In training, the op saves the cell of each maximum instead of x, if one byte can number the
// cells.
Outputs build_max_pool(LayerBuilder& b, const ResolvedLayer& layer,
                       std::span<const TensorId> inputs) {
  if (!b.options().training || !has_byte_cells(layer.attributes)) {
    return build_pool(b, layer, inputs);
  }
  if (Status s = b.need_image(layer, inputs[0]); !s.ok()) return std::move(s).error();
  Attributes attributes = layer.attributes;
  attributes.set("keep_winner", int64_t{1});
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "MaxPool", std::move(attributes),
                                                {inputs[0]}, {"winner"}));
  return {{y}};
}

void complete_resize(Attributes& a) {
  a.set("mode", a.get_string("mode", "nearest"));
  if (a.find("sizes") != nullptr) a.set("sizes", spell_out(a, "sizes", 2, {}));
}

Outputs build_resize(LayerBuilder& b, const ResolvedLayer& layer,
                     std::span<const TensorId> inputs) {
  if (Status s = b.need_image(layer, inputs[0]); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Resize", layer.attributes, {inputs[0]}));
  return {{y}};
}

std::vector<AttributeRule> window_rules() {
  return {dims_rule("kernel_shape", true, 1, kWindowMax, {1, 2}),
          dims_rule("strides", false, 1, kWindowMax, {1, 2}),
          dims_rule("pads", false, 0, kWindowMax, {1, 4})};
}

std::vector<AttributeRule> operator+(std::vector<AttributeRule> rules,
                                     const std::vector<AttributeRule>& more) {
  rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

}  // namespace

std::vector<LayerKind> image_layers() {
  const AttributeRule dilations = dims_rule("dilations", false, 1, kWindowMax, {1, 2});
  const std::vector<AttributeRule> own = {integer_rule("out_channels", true, 1, kChannelsMax),
                                          integer_rule("group", false, 1, kChannelsMax), dilations};
  return {{.op = "Conv",
           .field = "conv",
           .attributes = own + window_rules() + weight_rules(),
           .complete = complete_conv,
           .build = build_conv},
          {.op = "ConvTranspose",
           .field = "conv_transpose",
           .attributes = own + window_rules() + weight_rules() +
                         std::vector{dims_rule("output_padding", false, 0, kWindowMax, {1, 2})},
           .complete = complete_conv,
           .build = build_conv_transpose},
          {.op = "MaxPool",
           .field = "max_pool",
           .attributes = window_rules() + std::vector{boolean_rule("ceil_mode"), dilations},
           .complete = complete_max_pool,
           .build = build_max_pool},
          {.op = "AveragePool",
           .field = "average_pool",
           .attributes = window_rules() + std::vector{boolean_rule("count_include_pad"),
                                                      boolean_rule("ceil_mode"), dilations},
           .complete = complete_average_pool,
           .build = build_pool},
          {.op = "GlobalAveragePool", .field = "global_average_pool", .build = build_pool},
          {.op = "GlobalMaxPool", .field = "global_max_pool", .build = build_global_max_pool},
          {.op = "Resize",
           .field = "resize",
           .attributes = {dims_rule("sizes", false, 1, 65536, {1, 2}),
                          real_rule("scales", false, {.max = 65536, .min_excluded = true}),
                          choice_rule("mode", {"nearest", "linear"}),
                          choice_rule("coordinate_transformation_mode",
                                      {"half_pixel", "align_corners", "asymmetric"}),
                          choice_rule("nearest_mode", {"round_prefer_floor", "round_prefer_ceil",
                                                       "floor", "ceil"})},
           .complete = complete_resize,
           .build = build_resize}};
}

}  // namespace trainyard
