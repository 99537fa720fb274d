#include "src/models/families/config_writer.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "src/base/join.h"
#include "src/models/model_json.h"

namespace trainyard {
namespace {

using Ordered = nlohmann::ordered_json;

Result<std::vector<LayerSpec>> layers_of(const ModelSpec& network, const ConfigSettings& settings) {
  ModelInterface interface;
  interface.input = Shape{1};
  interface.vocabulary = settings.vocabulary;
  const bool classifies = !settings.classes.empty();
  interface.outputs = classifies ? std::ssize(settings.classes) : settings.vocabulary;
  interface.target = classifies ? TargetForm::kClass : TargetForm::kNextToken;
  return expand_preset(network, interface);
}

/// Two networks are the same if their layers give the same text.
std::string text_of(std::vector<LayerSpec> layers) {
  ModelSpec network;
  network.layers = std::move(layers);
  return model_to_json(network);
}

/// The layers of a preset by their names.
class NamedLayers {
 public:
  explicit NamedLayers(const std::vector<LayerSpec>& layers) {
    for (const LayerSpec& layer : layers) by_name_[layer.name] = &layer;
  }
  const LayerSpec* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  const Attributes& of(const std::string& name) const { return by_name_.at(name)->attributes; }
  /// Returns the number of blocks: layers "h0_attn", "h1_attn", ...
  int64_t blocks() const {
    int64_t count = 0;
    while (find("h" + std::to_string(count) + "_attn") != nullptr) ++count;
    return count;
  }

 private:
  std::map<std::string, const LayerSpec*, std::less<>> by_name_;
};

void write_tokens(Ordered& config, const ConfigSettings& settings) {
  const auto write = [&](const char* key, std::optional<int64_t> token) {
    config[key] = token ? Ordered(*token) : Ordered(nullptr);
  };
  write("bos_token_id", settings.begin_token);
  write("eos_token_id", settings.end_token);
  write("pad_token_id", settings.padding_token);
}

/// Writes the architecture, and the names of a classifier's classes.
void write_task(Ordered& config, const FamilyName& family, const ConfigSettings& settings) {
  const bool classifies = !settings.classes.empty();
  config["architectures"] = Ordered::array({classifies ? family.classifier : family.architecture});
  if (!classifies) return;
  Ordered names = Ordered::object(), numbers = Ordered::object();
  for (size_t i = 0; i < settings.classes.size(); ++i) {
    names[std::to_string(i)] = settings.classes[i];
    numbers[settings.classes[i]] = i;
  }
  config["id2label"] = std::move(names);
  config["label2id"] = std::move(numbers);
}

std::string config_activation(const LayerSpec& layer) {
  if (layer.op == "Swish") return "silu";
  return layer.attributes.get_string("approximate", "none") == "tanh" ? "gelu_pytorch_tanh"
                                                                      : "gelu";
}

/// transformers 4 reads rope_theta and rope_scaling, and transformers 5 reads both as well.
void write_rotary(Ordered& config, const Attributes& p) {
  config["rope_theta"] = p.get_float("rope_theta", 10000);
  const std::string scaling = p.get_string("rope_scaling", "none");
  if (scaling == "none") return;
  Ordered rope = {{"rope_type", scaling}};
  const std::map<std::string_view, const char*> keys = {
      {"rope_factor", "factor"},
      {"rope_low_freq_factor", "low_freq_factor"},
      {"rope_high_freq_factor", "high_freq_factor"},
      {"rope_original_positions", "original_max_position_embeddings"},
      {"rope_attention_factor", "attention_factor"},
      {"rope_beta_fast", "beta_fast"},
      {"rope_beta_slow", "beta_slow"}};
  for (const auto& [parameter, key] : keys) {
    if (p.find(parameter) == nullptr) continue;
    if (parameter == "rope_original_positions") {
      rope[key] = p.get_int(parameter, 0);
    } else {
      rope[key] = p.get_float(parameter, 0);
    }
  }
  if (p.find("rope_truncate") != nullptr) rope["truncate"] = p.get_int("rope_truncate", 1) != 0;
  config["rope_scaling"] = std::move(rope);
}

/// Writes which layers have a window or no rotary positions, where some do.
void write_layer_kinds(Ordered& config, std::string_view family, const NamedLayers& layers) {
  std::vector<int> rotary;
  std::vector<std::string> types;
  int64_t window = 0;
  bool all_rotary = true;
  for (int64_t i = 0; i < layers.blocks(); ++i) {
    const std::string h = "h" + std::to_string(i);
    rotary.push_back(layers.find(h + "_q_rope") != nullptr ? 1 : 0);
    all_rotary = all_rotary && rotary.back() == 1;
    const int64_t own = layers.of(h + "_attn").get_int("window", 0);
    types.emplace_back(own > 0 ? "sliding_attention" : "full_attention");
    if (own > 0) window = own;
  }
  if (family == "smollm3") config["no_rope_layers"] = rotary;
  if (family == "mistral") {
    config["sliding_window"] = window > 0 ? Ordered(window) : Ordered(nullptr);
  } else if (window > 0) {
    config["use_sliding_window"] = true;
    config["sliding_window"] = window;
    config["layer_types"] = types;
  }
  // A family without such layers refuses the key, so that another one is chosen.
  if (!all_rotary && family != "smollm3") config["no_rope_layers"] = rotary;
}

Ordered decoder_config(const FamilyName& family, const Attributes& p, const NamedLayers& layers,
                       const ConfigSettings& settings) {
  const Attributes& attention = layers.of("h0_attn");
  const int64_t heads = attention.get_int("q_num_heads", 1);
  Ordered config = {{"architectures", Ordered::array()},
                    {"model_type", family.type},
                    {"hidden_size", layers.of("embed").get_int("embedding_dim", 0)},
                    {"intermediate_size", layers.of("h0_gate").get_int("units", 0)},
                    {"num_hidden_layers", layers.blocks()},
                    {"num_attention_heads", heads},
                    {"num_key_value_heads", attention.get_int("kv_num_heads", heads)},
                    {"head_dim", layers.of("h0_q").get_int("units", 0) / heads},
                    {"vocab_size", settings.vocabulary},
                    {"max_position_embeddings", settings.positions},
                    {"rms_norm_eps", layers.of("norm").get_float("epsilon", 1e-5)},
                    {"hidden_act", config_activation(*layers.find("h0_act"))},
                    {"tie_word_embeddings", p.get_int("tied_head", 0) != 0},
                    {"attention_dropout", 0.0},
                    {"initializer_range", 0.02},
                    {"use_cache", true},
                    {"dtype", "float32"}};
  if (layers.of("h0_o").get_int("bias", 0) != 0) config["attention_bias"] = true;
  if (layers.of("h0_gate").get_int("bias", 0) != 0) config["mlp_bias"] = true;
  write_rotary(config, p);
  write_layer_kinds(config, family.type, layers);
  if (family.type == "granite") {
    config["embedding_multiplier"] = p.get_float("embedding_multiplier", 1);
    config["residual_multiplier"] = p.get_float("residual_multiplier", 1);
    config["attention_multiplier"] = attention.get_float("scale", 1);
    config["logits_scaling"] = p.get_float("logits_divisor", 1);
  }
  write_task(config, family, settings);
  write_tokens(config, settings);
  return config;
}

Ordered gpt2_config(const FamilyName& family, const Attributes& p, const NamedLayers& layers,
                    const ConfigSettings& settings) {
  const double dropout = p.get_float("dropout", 0);
  Ordered config = {{"architectures", Ordered::array()},
                    {"model_type", "gpt2"},
                    {"n_layer", layers.blocks()},
                    {"n_embd", layers.of("wte").get_int("embedding_dim", 0)},
                    {"n_head", layers.of("h0_attn").get_int("q_num_heads", 1)},
                    {"n_positions", settings.positions},
                    {"vocab_size", settings.vocabulary},
                    {"activation_function", "gelu_new"},
                    {"layer_norm_epsilon", 1e-5},
                    {"resid_pdrop", dropout},
                    {"embd_pdrop", dropout},
                    {"attn_pdrop", dropout},
                    {"initializer_range", 0.02},
                    {"tie_word_embeddings", true},
                    {"dtype", "float32"}};
  write_task(config, family, settings);
  write_tokens(config, settings);
  return config;
}

Error no_family(const std::string& why) {
  return make_error(ErrorCode::kFailedPrecondition, "EXPORT_UNSUPPORTED",
                    why + "; expected a network of " + joined(family_names()) +
                        ". It can be exported as safetensors or onnx");
}

}  // namespace

Result<WrittenConfig> write_model_config(const ModelSpec& network, const ConfigSettings& settings) {
  const bool is_gpt2 = network.preset == "gpt2";
  if (!is_gpt2 && network.preset != "decoder") {
    return no_family("the model is " +
                     (network.preset.empty() ? std::string("a list of layers")
                                             : "the preset " + network.preset) +
                     ", which no family of transformers has");
  }
  ModelSpec named = network;
  // A config always says theta; the layers of a preset say it only if the preset's parameters do.
  if (!is_gpt2)
    named.parameters.set("rope_theta", network.parameters.get_float("rope_theta", 10000));
  ASSIGN_OR_RETURN(const auto expanded, layers_of(named, settings));
  const std::string wanted = text_of(expanded);
  const NamedLayers layers(expanded);
  std::vector<FamilyName> families = family_list();
  for (const FamilyName& family : families) {
    if ((family.type == "gpt2") != is_gpt2) continue;
    if (!settings.classes.empty() && family.classifier.empty()) continue;
    const Ordered config = is_gpt2 ? gpt2_config(family, network.parameters, layers, settings)
                                   : decoder_config(family, network.parameters, layers, settings);
    std::string text = config.dump(2) + "\n";
    const auto read = read_model_config(text);
    if (!read.ok()) continue;
    const auto again = layers_of(read->network, settings);
    if (again.ok() && text_of(*again) == wanted) {
      return WrittenConfig{std::move(text), std::string(family.type)};
    }
  }
  return no_family("no family of transformers that is known here has all parameters of the model " +
                   network.parameters.to_string());
}

}  // namespace trainyard
