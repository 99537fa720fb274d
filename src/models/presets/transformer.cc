// The presets gpt2, vit_tiny, vit_small, vit_base and transformer_classifier. All consist of
// pre-norm transformer blocks: attention and two dense layers, each with a normalization before it
// and a residual sum after it.
#include <algorithm>
#include <array>
#include <cmath>

#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

constexpr double kWeightStd = 0.02;

struct BlockOptions {
  int64_t width, heads, hidden;
  bool causal = false;
  bool gelu_tanh = false;
  double epsilon = 1e-5;
  bool padded = false;  // the input is tokens with padding, which attention leaves out
  double dropout = 0;   // dropout ratio in attention, and after both branches
  // Standard deviation of the weights of each branch's last layer.
  double projection_std = kWeightStd;
};

class TransformerLayers {
 public:
  /// Appends a layer that reads the one before it, or the layers in `inputs`.
  void add(std::string name, std::string op, Attributes attributes = {},
           std::vector<std::string> inputs = {}) {
    layers_.push_back({std::move(name), std::move(op), std::move(inputs), std::move(attributes)});
  }

  void add_dropout(const std::string& name, double ratio) {
    if (ratio > 0) add(name, "Dropout", {{"ratio", ratio}});
  }

  void add_linear(const std::string& name, int64_t units, double std = kWeightStd) {
    add(name, "Linear",
        {{"units", units}, {"initializer", std::string("normal")}, {"initializer_std", std}});
  }
  /// Appends the last layer, whose size follows from the dataset.
  void add_head() {
    add("head", "Linear",
        {{"initializer", std::string("normal")}, {"initializer_std", kWeightStd}});
  }

  /// Appends the layer that selects the last token of each row that is not padding.
  void add_last_token() {
    add("pool", "SequencePool", {{"mode", std::string("last")}}, {layers_.back().name, "input"});
  }

  /// Appends the layers "<prefix>_ln_1" to "<prefix>_add_2" of one block.
  void add_block(const std::string& prefix, const BlockOptions& o) {
    const std::string input = layers_.back().name;
    const Attributes norm{{"epsilon", o.epsilon}};
    add(prefix + "_ln_1", "LayerNormalization", norm);
    add_linear(prefix + "_attn_qkv", 3 * o.width);
    Attributes attention{{"q_num_heads", o.heads}, {"is_causal", int64_t{o.causal ? 1 : 0}}};
    if (o.dropout > 0) attention.set("dropout", o.dropout);
    std::vector<std::string> inputs;
    if (o.padded) inputs = {prefix + "_attn_qkv", "input"};
    add(prefix + "_attn", "Attention", std::move(attention), std::move(inputs));
    add_linear(prefix + "_attn_proj", o.width, o.projection_std);
    add_dropout(prefix + "_attn_drop", o.dropout);
    add(prefix + "_add_1", "Add", {}, {input, layers_.back().name});
    add(prefix + "_ln_2", "LayerNormalization", norm);
    add_linear(prefix + "_mlp_fc", o.hidden);
    add(prefix + "_mlp_gelu", "Gelu",
        {{"approximate", std::string(o.gelu_tanh ? "tanh" : "none")}});
    add_linear(prefix + "_mlp_proj", o.width, o.projection_std);
    add_dropout(prefix + "_mlp_drop", o.dropout);
    add(prefix + "_add_2", "Add", {}, {prefix + "_add_1", layers_.back().name});
  }

  std::vector<LayerSpec> take() { return std::move(layers_); }

 private:
  std::vector<LayerSpec> layers_;
};

Error misfit(const std::string& preset, const std::string& needs, const ModelInterface& interface) {
  std::string found = "one sample of the dataset is " + interface.input.to_string();
  if (interface.vocabulary > 0) found += " tokens";
  if (interface.target == TargetForm::kNumeric) found += " with a numeric target";
  if (interface.target == TargetForm::kNextToken) found += " that predict the next one";
  return field_error("SHAPE_MISMATCH", "model." + preset, "needs " + needs + ", but " + found);
}

Status check_heads(const std::string& preset, int64_t width, int64_t heads) {
  if (width % heads == 0) return {};
  return field_error("FIELD_OUT_OF_RANGE", "model." + preset + ".n_head",
                     std::to_string(heads) + " heads do not divide the width n_embd " +
                         std::to_string(width) + ", expected a divisor of it");
}

// --- gpt2 ---

struct GptSize {
  std::string_view name;
  int64_t layers, heads, width;
};
// small to xl are the four sizes of Radford et al. (2019). mini has 10.6 million parameters with a
// vocabulary of 65 characters and 256 positions.
constexpr std::array<GptSize, 6> kGptSizes = {{{"nano", 3, 3, 48},
                                               {"mini", 6, 6, 384},
                                               {"small", 12, 12, 768},
                                               {"medium", 24, 16, 1024},
                                               {"large", 36, 20, 1280},
                                               {"xl", 48, 25, 1600}}};

Layers expand_gpt2(const Attributes& parameters, const ModelInterface& interface) {
  const bool fits = interface.target == TargetForm::kNextToken || classifies_text(interface);
  if (interface.vocabulary == 0 || !fits) {
    return misfit("gpt2", "text whose next token is predicted, or rows of text with classes",
                  interface);
  }
  const std::string name = parameters.get_string("size", "small");
  const auto size = std::ranges::find(kGptSizes, name, &GptSize::name);
  const int64_t depth = parameters.get_int("n_layer", size->layers);
  BlockOptions block{};
  block.width = parameters.get_int("n_embd", size->width);
  block.heads = parameters.get_int("n_head", size->heads);
  block.hidden = 4 * block.width;
  block.causal = true;
  block.gelu_tanh = true;
  block.dropout = parameters.get_float("dropout", 0);
  // Each block adds two branches to the residual sum. This factor keeps the sum's deviation
  // independent of the depth.
  block.projection_std = kWeightStd / std::sqrt(2.0 * static_cast<double>(depth));
  if (Status s = check_heads("gpt2", block.width, block.heads); !s.ok()) {
    return std::move(s).error();
  }
  TransformerLayers layers;
  layers.add("wte", "Embedding", {{"embedding_dim", block.width}, {"initializer_std", kWeightStd}});
  layers.add("wpe", "PositionEmbedding", {{"initializer_std", kWeightStd}});
  layers.add_dropout("drop", block.dropout);
  for (int64_t i = 0; i < depth; ++i) layers.add_block("h" + std::to_string(i), block);
  const bool classifies = classifies_text(interface);
  if (classifies) layers.add_last_token();
  layers.add("ln_f", "LayerNormalization", {{"epsilon", block.epsilon}});
  if (classifies) {
    layers.add(std::string(kClassifierHead), "Linear",
               {{"bias", int64_t{0}},
                {"initializer", std::string("normal")},
                {"initializer_std", kWeightStd}});
  } else {
    layers.add("head", "Linear", {{"tied_to", std::string("wte")}, {"bias", int64_t{0}}});
  }
  return layers.take();
}

// --- vit ---

struct VitSize {
  std::string_view preset;
  int64_t width, heads;
};

Layers expand_vit(const Attributes& parameters, const ModelInterface& interface,
                  const VitSize& size) {
  const std::string preset(size.preset);
  const Shape& x = interface.input;
  if (x.rank() != 3 || interface.vocabulary > 0) return misfit(preset, "images", interface);
  const int64_t patch = parameters.get_int("patch_size", 16);
  if (x[1] % patch != 0 || x[2] % patch != 0) {
    return field_error("SHAPE_MISMATCH", "model." + preset + ".patch_size",
                       std::to_string(patch) + " does not divide the images of " + x.to_string() +
                           ", expected a divisor of " + std::to_string(x[1]) + " and " +
                           std::to_string(x[2]));
  }
  const bool class_token = parameters.get_string("pool", "class_token") == "class_token";
  BlockOptions block{};
  block.width = size.width;
  block.heads = size.heads;
  block.hidden = 4 * size.width;
  block.epsilon = 1e-6;
  block.dropout = parameters.get_float("dropout", 0);
  const std::vector<int64_t> window = {patch, patch};
  TransformerLayers layers;
  layers.add("patch_embed", "Conv",
             {{"out_channels", size.width}, {"kernel_shape", window}, {"strides", window}});
  layers.add("patches", "ImageToSequence");
  layers.add("pos_embed", "PositionEmbedding",
             {{"class_token", int64_t{class_token ? 1 : 0}}, {"initializer_std", kWeightStd}});
  layers.add_dropout("pos_drop", block.dropout);
  for (int64_t i = 0; i < 12; ++i) layers.add_block("h" + std::to_string(i), block);
  // With a class token, normalizing after the selection is equivalent to normalizing before it.
  layers.add("pool", "SequencePool", {{"mode", std::string(class_token ? "first" : "mean")}});
  layers.add("norm", "LayerNormalization", {{"epsilon", block.epsilon}});
  layers.add_head();
  return layers.take();
}

constexpr VitSize kVitTiny{"vit_tiny", 192, 3};
constexpr VitSize kVitSmall{"vit_small", 384, 6};
constexpr VitSize kVitBase{"vit_base", 768, 12};

template <const VitSize& kSize>
Layers expand_vit_of(const Attributes& parameters, const ModelInterface& interface) {
  return expand_vit(parameters, interface, kSize);
}

// --- transformer_classifier ---

Layers expand_classifier(const Attributes& parameters, const ModelInterface& interface) {
  if (interface.vocabulary == 0 || interface.target == TargetForm::kNextToken) {
    return misfit("transformer_classifier", "text with a class or a number to predict", interface);
  }
  BlockOptions block{};
  block.width = parameters.get_int("n_embd", 128);
  block.heads = parameters.get_int("n_head", 4);
  block.hidden = parameters.get_int("hidden", 4 * block.width);
  block.padded = true;
  block.dropout = parameters.get_float("dropout", 0);
  if (Status s = check_heads("transformer_classifier", block.width, block.heads); !s.ok()) {
    return std::move(s).error();
  }
  TransformerLayers layers;
  layers.add("wte", "Embedding", {{"embedding_dim", block.width}, {"initializer_std", kWeightStd}});
  layers.add("wpe", "PositionEmbedding", {{"initializer_std", kWeightStd}});
  layers.add_dropout("drop", block.dropout);
  const int64_t depth = parameters.get_int("n_layer", 2);
  for (int64_t i = 0; i < depth; ++i) layers.add_block("h" + std::to_string(i), block);
  layers.add("ln_f", "LayerNormalization", {{"epsilon", block.epsilon}});
  layers.add("pool", "SequencePool", {{"mode", std::string("mean")}}, {"ln_f", "input"});
  layers.add_head();
  return layers.take();
}

std::vector<AttributeRule> depth_and_width() {
  return {integer_rule("n_layer", false, 1, 256), integer_rule("n_head", false, 1, 1024),
          integer_rule("n_embd", false, 1, 65536),
          real_rule("dropout", false, {.max = 1, .max_excluded = true})};
}

}  // namespace

std::vector<PresetKind> transformer_presets() {
  std::vector<AttributeRule> gpt = depth_and_width();
  std::vector<std::string_view> sizes;
  for (const GptSize& size : kGptSizes) sizes.push_back(size.name);
  gpt.push_back(choice_rule("size", std::move(sizes)));
  std::vector<AttributeRule> classifier = depth_and_width();
  classifier.push_back(integer_rule("hidden", false, 1, 262144));
  const std::vector<AttributeRule> vit = {
      integer_rule("patch_size", false, 1, 1024), choice_rule("pool", {"class_token", "mean"}),
      real_rule("dropout", false, {.max = 1, .max_excluded = true})};
  return {{.name = "gpt2",
           .parameters = std::move(gpt),
           .expand = expand_gpt2,
           .predicts_tokens = true},
          {"vit_tiny", vit, expand_vit_of<kVitTiny>},
          {"vit_small", vit, expand_vit_of<kVitSmall>},
          {"vit_base", vit, expand_vit_of<kVitBase>},
          {"transformer_classifier", std::move(classifier), expand_classifier}};
}

}  // namespace trainyard
