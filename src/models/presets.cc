#include <algorithm>

#include "src/base/text.h"
#include "src/models/layer.h"
#include "src/models/preset.h"

namespace trainyard {

const std::vector<PresetKind>& preset_kinds() {
  static const std::vector<PresetKind> kinds = [] {
    std::vector<PresetKind> all;
    for (auto family : {classic_presets, vgg_presets, resnet_presets, transformer_presets,
                        decoder_presets, text_presets, autoencoder_presets}) {
      std::ranges::move(family(), std::back_inserter(all));
    }
    return all;
  }();
  return kinds;
}

const PresetKind* find_preset_kind(std::string_view name) {
  const auto it = std::ranges::find(preset_kinds(), name, &PresetKind::name);
  return it == preset_kinds().end() ? nullptr : &*it;
}

LayerSpec preset_layer(std::string name, std::string_view op, Attributes attributes,
                       std::vector<std::string> inputs) {
  LayerSpec layer;
  layer.name = std::move(name);
  layer.op = op;
  layer.inputs = std::move(inputs);
  layer.attributes = std::move(attributes);
  return layer;
}

Status need_images(const ModelInterface& interface, const std::string& preset, int64_t side_min) {
  const Shape& x = interface.input;
  if (x.rank() == 3 && x[1] >= side_min && x[2] >= side_min) return {};
  const std::string side = std::to_string(side_min);
  std::string description = "needs images of at least " + side + "x" + side +
                            ", but one sample of the dataset is " + x.to_string();
  if (x.rank() != 3)
    description += interface.vocabulary > 0 ? " tokens" : "; use model.mlp for rows";
  return field_error("SHAPE_MISMATCH", "model." + preset, std::move(description));
}

AttributeRule activation_rule() {
  return choice_rule("activation", {"relu", "sigmoid", "tanh", "gelu", "swish"});
}

std::string_view activation_op(std::string_view field) {
  const auto it = std::ranges::find(layer_kinds(), field, &LayerKind::field);
  TRAINYARD_CHECK(it != layer_kinds().end(), "no activation " + std::string(field));
  return it->op;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const PresetKind& kind : preset_kinds()) names.emplace_back(kind.name);
  return names;
}

Result<std::vector<LayerSpec>> expand_preset(const ModelSpec& spec,
                                             const ModelInterface& interface) {
  const PresetKind* kind = find_preset_kind(spec.preset);
  if (kind == nullptr) {
    const std::vector<std::string> names = preset_names();
    std::string description = quoted_value(spec.preset) + " is not a preset";
    if (const auto nearest = nearest_name(spec.preset, names)) {
      description += ", did you mean '" + *nearest + "'?";
    } else {
      description += ", expected one of";
      for (size_t i = 0; i < names.size(); ++i) description += (i > 0 ? ", " : " ") + names[i];
    }
    return field_error("FIELD_UNKNOWN", "model", std::move(description));
  }
  Violations violations;
  const std::string path = "model." + spec.preset;
  check_attributes(kind->parameters, spec.parameters, path, path, violations);
  if (!violations.empty()) return violations.to_error();
  return kind->expand(spec.parameters, interface);
}

}  // namespace trainyard
