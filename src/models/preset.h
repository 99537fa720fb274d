// src/models/preset.h: named models. A preset is a layer list, sized from the dataset, that users
// can print and change. src/models/presets/ has one file per family.
#pragma once

#include <string_view>
#include <vector>

#include "src/models/attribute_rule.h"
#include "src/models/model_spec.h"

namespace trainyard {

struct PresetKind {
  std::string_view name;  // "lenet5": key in a spec file
  std::vector<AttributeRule> parameters = {};
  /// Returns the layers. `parameters` have been checked. Refuses a dataset that the model does not
  /// fit.
  Result<std::vector<LayerSpec>> (*expand)(const Attributes& parameters,
                                           const ModelInterface& interface) = nullptr;
  bool reconstructs = false;     // the model learns to reconstruct its input
  bool predicts_tokens = false;  // a language model, which also classifies (kClassifierHead)
};

/// These return all presets, in the order of the families, and the preset of a given name, or null.
const std::vector<PresetKind>& preset_kinds();
const PresetKind* find_preset_kind(std::string_view name);

// Returns the presets of each family.
std::vector<PresetKind> classic_presets();
std::vector<PresetKind> vgg_presets();
std::vector<PresetKind> resnet_presets();
std::vector<PresetKind> transformer_presets();
std::vector<PresetKind> decoder_presets();
std::vector<PresetKind> text_presets();
std::vector<PresetKind> autoencoder_presets();

/// The parameter that requests embeddings of categorical columns.
inline constexpr std::string_view kEmbeddingParameter = "embedding";
/// The parameter for a vocabulary with more tokens than the dataset's, which have no text.
inline constexpr std::string_view kVocabularyParameter = "vocab_size";

/// The last layer of a language model that classifies rows of text, as transformers'
/// ...ForSequenceClassification name it.
inline constexpr std::string_view kClassifierHead = "score";
/// Returns whether a preset's network is a language model that classifies rows of text.
inline bool classifies_text(const ModelInterface& interface) {
  return interface.vocabulary > 0 && interface.classification();
}

/// Constructs a layer of a preset. Without `inputs`, the layer reads the one before it.
LayerSpec preset_layer(std::string name, std::string_view op, Attributes attributes = {},
                       std::vector<std::string> inputs = {});
/// Returns SHAPE_MISMATCH unless a sample is an image of at least `side_min` x `side_min`.
Status need_images(const ModelInterface& interface, const std::string& preset, int64_t side_min);
/// Returns the parameter `activation`, and the op for one of its values: "relu" -> "Relu".
AttributeRule activation_rule();
std::string_view activation_op(std::string_view field);

}  // namespace trainyard
