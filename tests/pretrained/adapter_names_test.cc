// Names of adapters and weights in files for PEFT and transformers, which were read from the files
// that these programs write.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <nlohmann/json.hpp>

#include "src/artifact/lora_model.h"
#include "src/models/naming/naming.h"

namespace trainyard {
namespace {

/// A model's tensors, all of zeros.
class Tensors {
 public:
  void add(const std::string& name, const Shape& shape) {
    storage_.emplace_back(static_cast<size_t>(shape.elements()));
    views_.push_back({name, {shape, DType::kF32}, std::as_bytes(std::span(storage_.back()))});
  }
  /// Adds a weight of 4 x 4, and if `adapted`, an adapter of rank 2.
  void add_layer(const std::string& layer, bool adapted) {
    add(layer + ".weight", Shape{4, 4});
    if (!adapted) return;
    add(layer + ".lora_A.weight", Shape{2, 4});
    add(layer + ".lora_B.weight", Shape{4, 2});
  }
  std::span<const TensorView> views() const { return views_; }

 private:
  std::list<std::vector<float>> storage_;
  std::vector<TensorView> views_;
};

struct Written {
  std::vector<std::string> names;
  nlohmann::json config;
};

Written adapter_of(const std::string& preset, const Tensors& tensors,
                   const std::string& rank_scaling = "linear") {
  ModelSpec network;
  network.preset = preset;
  Recipe recipe;
  recipe.lora.rank = 2;
  recipe.lora.alpha = 4;
  recipe.lora.rank_scaling = rank_scaling;
  recipe.initial_weights.source = "SmolLM2";
  const LoraModel model = split_lora(network, recipe, tensors.views());
  Written written{{}, nlohmann::json::parse(model.adapter_config)};
  for (const TensorView& t : model.adapter) written.names.push_back(t.name);
  return written;
}

using Names = std::vector<std::string>;

TEST(AdapterNames, OfADecoderAreThoseOfTransformers) {
  Tensors tensors;
  for (const char* layer : {"h0_q", "h1_q"}) tensors.add_layer(layer, true);
  for (const char* layer : {"h0_down", "h1_down"}) tensors.add_layer(layer, layer[1] == '0');
  tensors.add_layer("norm", false);
  const Written written = adapter_of("decoder", tensors);
  EXPECT_EQ(written.names, (Names{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                                  "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
                                  "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight",
                                  "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight",
                                  "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
                                  "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"}));
  // A module that is adapted in every layer is named once, others in full.
  EXPECT_EQ(written.config.at("target_modules"), (Names{"q_proj", "model.layers.0.mlp.down_proj"}));
  EXPECT_EQ(written.config.at("base_model_name_or_path"), "SmolLM2");
  EXPECT_EQ(written.config.at("task_type"), "CAUSAL_LM");
  EXPECT_EQ(written.config.at("fan_in_fan_out"), false);
  EXPECT_EQ(written.config.at("use_rslora"), false);
}

TEST(AdapterNames, OfGpt2AreThoseOfTransformers) {
  Tensors tensors;
  tensors.add_layer("h0_attn_qkv", true);
  tensors.add_layer("h0_attn_proj", true);
  tensors.add_layer("h0_mlp_proj", false);
  const Written written = adapter_of("gpt2", tensors, "sqrt");
  EXPECT_EQ(written.names.front(), "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
  // c_proj is also the name of a module that is not adapted.
  EXPECT_EQ(written.config.at("target_modules"), (Names{"c_attn", "transformer.h.0.attn.c_proj"}));
  EXPECT_EQ(written.config.at("fan_in_fan_out"), true);
  EXPECT_EQ(written.config.at("use_rslora"), true);
}

TEST(AdapterNames, AClassifiersLastLayerIsSavedWhole) {
  Tensors tensors;
  tensors.add_layer("h0_q", true);
  tensors.add_layer("score", false);
  const Written written = adapter_of("decoder", tensors);
  EXPECT_EQ(std::ranges::count(written.names, "base_model.model.score.weight"), 1);
  EXPECT_EQ(written.config.at("task_type"), "SEQ_CLS");
  EXPECT_EQ(written.config.at("modules_to_save"), Names{"score"});
  EXPECT_EQ(written.config.at("target_modules"), Names{"q_proj"});
}

TEST(AdapterNames, OfOtherModelsAreTheirLayers) {
  Tensors tensors;
  tensors.add_layer("layer1/0/fc", true);
  const Written written = adapter_of("mlp", tensors);
  EXPECT_EQ(written.names.front(), "base_model.model.layer1.0.fc.lora_A.weight");
  EXPECT_TRUE(written.config.at("task_type").is_null());
}

TEST(LibraryNames, HaveTheLibrarysPrefix) {
  for (const NamingScheme& scheme : naming_schemes()) {
    if (scheme.presets != "decoder") continue;
    EXPECT_EQ(library_names(scheme, "h3_q.weight")->names,
              Names{"model.layers.3.self_attn.q_proj.weight"});
    EXPECT_EQ(library_names(scheme, "norm.weight")->names, Names{"model.norm.weight"});
    EXPECT_EQ(library_names(scheme, "head.weight")->names, Names{"lm_head.weight"});
    EXPECT_FALSE(library_names(scheme, "fc.weight").has_value());
  }
}

}  // namespace
}  // namespace trainyard
