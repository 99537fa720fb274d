// The table of families, and the reader of their common settings.
#include <algorithm>
#include <array>
#include <optional>

#include "src/base/join.h"
#include "src/base/text.h"
#include "src/models/families/config_object.h"
#include "src/models/families/expected_tensors.h"
#include "src/models/families/family.h"
#include "src/models/families/rotary_config.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr int64_t kConfigWidthMax = 65536, kConfigHiddenMax = 262144, kConfigLayersMax = 1024;
constexpr int64_t kConfigTokensMax = 1 << 22;

enum class Biases : uint8_t {
  kNone,
  kByConfig,  // of all four projections, by the setting attention_bias
  kInputs     // of query, key and value
};
enum class Windows : uint8_t {
  kNone,
  kAllLayers,     // sliding_window, on every layer
  kByLayer,       // layer_types, or the layers from max_window_layers on
  kWithoutRotary  // layer_types, or the layers without rotary positions
};

/// A family of models with Llama's network, described by what distinguishes it from the others. The
/// numbers are the values that transformers uses for settings that a config.json leaves out.
struct Family {
  std::string_view type, title;
  std::string_view architecture;
  std::string_view classifier =
      {};  // the architecture of classifiers; empty: transformers has none
  Biases biases = Biases::kByConfig;
  bool mlp_bias = false;  // whether there is a setting of this name
  std::string_view qk_norm = "none";
  bool norm_after = false;
  Windows windows = Windows::kNone;
  bool multipliers = false;        // Granite's
  bool leaves_out_rotary = false;  // in some layers
  bool tied = false;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: width / heads
  int64_t positions = 2048;
  double epsilon = 1e-6;
  double theta = 10000;
};

constexpr std::array kFamilies = std::to_array<Family>({
    {.type = "llama",
     .title = "Llama",
     .architecture = "LlamaForCausalLM",
     .classifier = "LlamaForSequenceClassification",
     .mlp_bias = true},
    {.type = "mistral",
     .title = "Mistral",
     .architecture = "MistralForCausalLM",
     .classifier = "MistralForSequenceClassification",
     .biases = Biases::kNone,
     .windows = Windows::kAllLayers,
     .kv_heads = 8,
     .positions = 131072},
    {.type = "qwen2",
     .title = "Qwen2",
     .architecture = "Qwen2ForCausalLM",
     .classifier = "Qwen2ForSequenceClassification",
     .biases = Biases::kInputs,
     .windows = Windows::kByLayer,
     .positions = 32768},
    {.type = "qwen3",
     .title = "Qwen3",
     .architecture = "Qwen3ForCausalLM",
     .classifier = "Qwen3ForSequenceClassification",
     .qk_norm = "head",
     .windows = Windows::kByLayer,
     .head_dim = 128,
     .positions = 32768},
    {.type = "smollm3",
     .title = "SmolLM3",
     .architecture = "SmolLM3ForCausalLM",
     .classifier = "SmolLM3ForSequenceClassification",
     .mlp_bias = true,
     .windows = Windows::kWithoutRotary,
     .leaves_out_rotary = true,
     .tied = true,
     .kv_heads = 4,
     .positions = 32768,
     .theta = 2000000},
    {.type = "granite",
     .title = "Granite",
     .architecture = "GraniteForCausalLM",
     .mlp_bias = true,
     .multipliers = true},
    {.type = "olmo2",
     .title = "OLMo 2",
     .architecture = "Olmo2ForCausalLM",
     .classifier = "Olmo2ForSequenceClassification",
     .qk_norm = "all",
     .norm_after = true,
     .epsilon = 1e-5},
});
constexpr std::string_view kGpt2 = "gpt2", kGpt2Architecture = "GPT2LMHeadModel";
constexpr std::string_view kGpt2Classifier = "GPT2ForSequenceClassification";

/// Settings that change nothing that is computed from a text's tokens: how the model was made, what
/// runs it, its special tokens (which the tokenizer's files have), and defaults of generation.
constexpr std::array kWithoutEffect =
    std::to_array<std::string_view>({"_*",
                                     "model_type",
                                     "transformers_version",
                                     "transformers.js_config",
                                     "auto_map",
                                     "use_cache",
                                     "*_token_id",
                                     "initializer_range",
                                     "pretraining_tp",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "output_scores",
                                     "torchscript",
                                     "use_bfloat16",
                                     "tf_legacy_loss",
                                     "attn_implementation",
                                     "tokenizer_class",
                                     "prefix",
                                     "task_specific_params",
                                     "finetuning_task",
                                     "problem_type",
                                     "chunk_size_feed_forward",
                                     "is_decoder",
                                     "is_llama_config",
                                     "unsloth_*",
                                     "name_or_path",
                                     "max_length",
                                     "min_length",
                                     "do_sample",
                                     "early_stopping",
                                     "num_beams",
                                     "num_beam_groups",
                                     "num_return_sequences",
                                     "diversity_penalty",
                                     "temperature",
                                     "top_k",
                                     "top_p",
                                     "typical_p",
                                     "repetition_penalty",
                                     "length_penalty",
                                     "*no_repeat_ngram_size",
                                     "exponential_decay_length_penalty",
                                     "remove_invalid_values",
                                     "*suppress_tokens",
                                     "bad_words_ids"});

/// Returns the format's name of a type of PyTorch; empty for none or another type.
std::string dtype_name(ConfigObject& config) {
  const std::string old_name = config.text("torch_dtype", "");
  std::string name = config.text("dtype", old_name);
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "float32") return "F32";
  if (name == "bfloat16") return "BF16";
  return name == "float16" ? "F16" : "";
}

/// Returns the number of classes of a classifier's config. transformers has two without a setting.
int64_t read_classes(ConfigObject& config) {
  constexpr int64_t kConfigClassesMax = 1 << 20;
  const int64_t count = config.integer("num_labels", 1, kConfigClassesMax, 2);
  const Json* const names = config.find("id2label");
  const int64_t classes = names != nullptr && names->is_object() ? std::ssize(*names) : count;
  if (classes < 2) {
    config.refuse("id2label", "has " + std::to_string(classes) +
                                  " entries, which is a regression; expected 2 classes or more");
  }
  return classes;
}

/// Returns whether the architecture is a family's classifier; refuses other architectures.
bool read_is_classifier(ConfigObject& config, std::string_view expected,
                        std::string_view classifier) {
  const std::vector<std::string> names = config.texts("architectures");
  if (names.empty() || std::ranges::find(names, expected) != names.end()) return false;
  if (!classifier.empty() && std::ranges::find(names, classifier) != names.end()) return true;
  config.refuse("architectures", "is " + quoted_value(names.front()) + ", expected " +
                                     std::string(expected) +
                                     (classifier.empty() ? "" : " or " + std::string(classifier)));
  return false;
}

/// Replaces the last layer over the tokens by one over the classes.
void become_classifier(int64_t classes, int64_t width, LanguageModel& model) {
  model.classes = classes;
  model.tied_head = false;
  std::erase_if(model.tensors, [](const ExpectedTensor& t) { return t.name == "lm_head.weight"; });
  model.tensors.push_back({"score.weight", {classes, width}});
}

/// Refuses settings by which a family's network becomes another one, with a message of their own.
void check_common(ConfigObject& config) {
  if (const Json* quantized = config.find("quantization_config")) {
    const bool named = quantized->is_object() && quantized->contains("quant_method");
    config.refuse("quantization_config",
                  "says that the weights are quantized" +
                      (named ? " by " + shown_value((*quantized)["quant_method"]) : "") +
                      "; expected weights in F32, BF16 or F16");
  }
  for (const std::string_view key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    const Json* value = config.find(key);
    if (value == nullptr || *value == 0) continue;
    config.refuse(key, "is " + shown_value(*value) +
                           ": mixtures of experts are not supported, expected dense layers");
  }
  config.expect_flag("is_encoder_decoder", false);
  config.expect_flag("add_cross_attention", false);
  config.expect_flag("rope_interleaved", false);
  config.expect_flag("use_mrope", false);
  for (const std::string_view pattern : kWithoutEffect) config.ignore(pattern);
  for (const char* labels : {"id2label", "label2id", "num_labels"}) config.ignore(labels);
}

std::string read_activation(ConfigObject& config, std::string_view key) {
  const std::string name = config.text(key, "silu");
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  if (name == "gelu") return "gelu";
  config.refuse(
      key, "is " + quoted_value(name) + ", expected silu, gelu, gelu_new or gelu_pytorch_tanh");
  return "silu";
}

/// Returns for each layer whether layer_types gives it a window; without such a list, by the
/// family's rule. `rotary`: whether each layer has rotary positions.
std::vector<bool> windowed_layers(ConfigObject& config, Windows windows, int64_t layers,
                                  const std::vector<bool>& rotary) {
  std::vector<bool> windowed(static_cast<size_t>(layers), windows == Windows::kAllLayers);
  if (windows == Windows::kAllLayers) return windowed;
  const int64_t first = config.integer("max_window_layers", 0, kConfigPositionsMax, layers);
  const std::vector<std::string> types = config.texts("layer_types");
  if (types.empty()) {
    for (size_t i = 0; i < windowed.size(); ++i) {
      windowed[i] = windows == Windows::kByLayer ? std::cmp_greater_equal(i, first) : !rotary[i];
    }
    return windowed;
  }
  if (std::ssize(types) != layers) {
    config.refuse("layer_types", "has " + std::to_string(types.size()) + " entries, expected " +
                                     std::to_string(layers) + ", one for each layer");
    return windowed;
  }
  for (size_t i = 0; i < windowed.size(); ++i) {
    windowed[i] = types[i] == "sliding_attention";
    if (windowed[i] || types[i] == "full_attention") continue;
    config.refuse("layer_types", "has " + quoted_value(types[i]) +
                                     ", expected full_attention or sliding_attention");
    break;
  }
  return windowed;
}

void read_windows(ConfigObject& config, const Family& family, int64_t layers,
                  const std::vector<bool>& rotary, Attributes& parameters) {
  if (family.windows == Windows::kNone) return;
  const bool uses =
      family.windows == Windows::kAllLayers || config.flag("use_sliding_window", false);
  const int64_t window = config.integer("sliding_window", 1, kConfigPositionsMax, 0);
  const std::vector<bool> windowed = windowed_layers(config, family.windows, layers, rotary);
  if (!uses || window == 0) return;
  std::vector<int64_t> list;
  for (size_t i = 0; i < windowed.size(); ++i) {
    if (windowed[i]) list.push_back(static_cast<int64_t>(i));
  }
  if (list.empty()) return;
  parameters.set("window", window);
  if (std::ssize(list) < layers) parameters.set("window_layers", list);
}

/// Returns for each layer whether it has rotary positions.
std::vector<bool> read_rotary_layers(ConfigObject& config, const Family& family, int64_t layers,
                                     Attributes& parameters) {
  std::vector<bool> rotary(static_cast<size_t>(layers), true);
  if (!family.leaves_out_rotary) return rotary;
  const int64_t interval = config.integer("no_rope_layer_interval", 1, kConfigPositionsMax, 4);
  const std::vector<int64_t> uses = config.integers("no_rope_layers", 0, 1);
  if (!uses.empty() && std::ssize(uses) < layers) {
    config.refuse("no_rope_layers", "has " + std::to_string(uses.size()) + " entries, expected " +
                                        std::to_string(layers) + ", one for each layer");
    return rotary;
  }
  std::vector<int64_t> without;
  for (size_t i = 0; i < rotary.size(); ++i) {
    rotary[i] = uses.empty() ? (static_cast<int64_t>(i) + 1) % interval != 0 : uses[i] != 0;
    if (!rotary[i]) without.push_back(static_cast<int64_t>(i));
  }
  if (!without.empty()) parameters.set("no_rope_layers", without);
  return rotary;
}

void read_multipliers(ConfigObject& config, Attributes& parameters) {
  for (const std::string_view key :
       {"embedding_multiplier", "residual_multiplier", "attention_multiplier"}) {
    parameters.set(std::string(key), config.positive(key, 1));
  }
  parameters.set("logits_divisor", config.positive("logits_scaling", 1));
}

void set_flag(Attributes& parameters, const char* name, bool value) {
  if (value) parameters.set(name, int64_t{1});
}

LanguageModel read_decoder(ConfigObject& config, const Family& family, Violations& problems) {
  FamilySizes sizes;
  sizes.layers = config.integer("num_hidden_layers", 1, kConfigLayersMax);
  sizes.width = config.integer("hidden_size", 1, kConfigWidthMax);
  sizes.hidden = config.integer("intermediate_size", 1, kConfigHiddenMax);
  sizes.heads = config.integer("num_attention_heads", 1, 1024);
  sizes.kv_heads = config.integer("num_key_value_heads", 1, kConfigWidthMax,
                                  family.kv_heads > 0 ? family.kv_heads : sizes.heads);
  sizes.head_dim = config.integer(
      "head_dim", 1, kConfigWidthMax,
      family.head_dim > 0 ? family.head_dim : std::max<int64_t>(sizes.width / sizes.heads, 1));
  sizes.vocabulary = config.integer("vocab_size", 2, kConfigTokensMax);
  sizes.tied = config.flag("tie_word_embeddings", family.tied);
  const bool biased = family.biases == Biases::kByConfig && config.flag("attention_bias", false);
  sizes.qkv_bias = biased || family.biases == Biases::kInputs;
  sizes.out_bias = biased;
  sizes.mlp_bias = family.mlp_bias && config.flag("mlp_bias", false);
  sizes.qk_norm = family.qk_norm;
  sizes.norm_after = family.norm_after;
  if (sizes.heads % sizes.kv_heads != 0) {
    config.refuse("num_key_value_heads", std::to_string(sizes.kv_heads) + " does not divide the " +
                                             std::to_string(sizes.heads) +
                                             " heads of num_attention_heads");
  }

  LanguageModel model;
  model.positions_max =
      config.integer("max_position_embeddings", 1, kConfigPositionsMax, family.positions);
  Attributes& p = model.network.parameters;
  p.set("vocab_size", sizes.vocabulary);
  p.set("n_layer", sizes.layers);
  p.set("n_embd", sizes.width);
  p.set("n_head", sizes.heads);
  p.set("n_kv_head", sizes.kv_heads);
  p.set("head_dim", sizes.head_dim);
  p.set("hidden", sizes.hidden);
  p.set("positions_max", model.positions_max);
  p.set("norm_epsilon", config.positive("rms_norm_eps", family.epsilon));
  const std::string activation = read_activation(config, "hidden_act");
  if (activation != "silu") p.set("activation", activation);
  set_flag(p, "qkv_bias", sizes.qkv_bias);
  set_flag(p, "out_bias", sizes.out_bias);
  set_flag(p, "mlp_bias", sizes.mlp_bias);
  set_flag(p, "tied_head", sizes.tied);
  if (family.qk_norm != "none") p.set("qk_norm", std::string(family.qk_norm));
  if (family.norm_after) p.set("norm_place", std::string("after"));
  read_rotary(config, family.theta, model.positions_max, problems, p);
  const std::vector<bool> rotary = read_rotary_layers(config, family, sizes.layers, p);
  read_windows(config, family, sizes.layers, rotary, p);
  if (family.multipliers) read_multipliers(config, p);
  if (const double dropout = config.real("attention_dropout", 0); dropout != 0) {
    model.notes.push_back("attention_dropout " + short_number(dropout) +
                          " of config.json is not applied in training.");
  }
  model.network.preset = "decoder";
  model.title = family.title;
  model.vocabulary = sizes.vocabulary;
  model.tied_head = sizes.tied;
  model.tensors = decoder_tensors(sizes);
  return model;
}

LanguageModel read_gpt2(ConfigObject& config) {
  const int64_t layers = config.integer("n_layer", 1, 256, 12);
  const int64_t width = config.integer("n_embd", 1, kConfigWidthMax, 768);
  const int64_t heads = config.integer("n_head", 1, 1024, 12);
  LanguageModel model;
  model.title = "GPT-2";
  model.network.preset = kGpt2;
  model.vocabulary = config.integer("vocab_size", 2, kConfigTokensMax, 50257);
  model.positions_max = config.integer("n_positions", 1, kConfigPositionsMax, 1024);
  model.tied_head = true;
  model.tensors = gpt2_tensors(layers, width, model.vocabulary, model.positions_max);
  Attributes& p = model.network.parameters;
  p.set("n_layer", layers);
  p.set("n_embd", width);
  p.set("n_head", heads);
  if (const int64_t hidden = config.integer("n_inner", 1, kConfigHiddenMax, 4 * width);
      hidden != 4 * width) {
    config.refuse("n_inner", "is " + std::to_string(hidden) + ", expected four times n_embd, " +
                                 std::to_string(4 * width));
  }
  if (config.text("activation_function", "gelu_new") != "gelu_new" &&
      read_activation(config, "activation_function") != "gelu_tanh") {
    config.refuse("activation_function", "is not supported, expected gelu_new");
  }
  if (config.positive("layer_norm_epsilon", 1e-5) != 1e-5) {
    config.refuse("layer_norm_epsilon", "is not supported, expected 1e-05");
  }
  config.expect_flag("scale_attn_weights", true);
  config.expect_flag("scale_attn_by_inverse_layer_idx", false);
  config.expect_flag("tie_word_embeddings", true);
  config.ignore("reorder_and_upcast_attn");  // the order of two products only
  config.ignore("summary_*");                // of a head that the architecture does not have
  config.ignore("n_ctx");
  const double dropout = config.real("resid_pdrop", 0.1);
  const bool alike = config.real("embd_pdrop", 0.1) == dropout &&
                     config.real("attn_pdrop", 0.1) == dropout && dropout >= 0 && dropout < 1;
  if (!alike) {
    config.refuse("resid_pdrop",
                  "expected the same share in [0, 1) for resid_pdrop, embd_pdrop and attn_pdrop");
  } else if (dropout > 0) {
    p.set("dropout", dropout);
  }
  return model;
}

Error invalid_config(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", "config.json: " + what);
}

}  // namespace

std::vector<FamilyName> family_list() {
  std::vector<FamilyName> list;
  for (const Family& family : kFamilies) {
    list.push_back({family.type, family.architecture, family.classifier});
  }
  list.push_back({kGpt2, kGpt2Architecture, kGpt2Classifier});
  return list;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const FamilyName& family : family_list()) names.emplace_back(family.type);
  return names;
}

int64_t LanguageModel::parameter_count() const {
  int64_t count = 0;
  for (const ExpectedTensor& tensor : tensors) count += tensor.shape.elements();
  return count;
}

Result<LanguageModel> read_model_config(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_config("is not a JSON object");
  Violations problems;
  ConfigObject config(json, "config.json: ", problems);
  const std::string type = config.text("model_type", "");
  const auto* const family = std::ranges::find(kFamilies, type, &Family::type);
  const bool is_gpt2 = type == kGpt2;
  if (family == kFamilies.end() && !is_gpt2) {
    if (!problems.empty()) return problems.to_error();
    return make_error(ErrorCode::kInvalidArgument, "MODEL_UNSUPPORTED",
                      "config.json: model_type: " +
                          (type.empty() ? "is missing" : quoted_value(type) + " is not supported") +
                          ", expected " + joined(family_names()));
  }
  const bool classifies =
      read_is_classifier(config, is_gpt2 ? kGpt2Architecture : family->architecture,
                         is_gpt2 ? kGpt2Classifier : family->classifier);
  const int64_t classes = classifies ? read_classes(config) : 0;
  check_common(config);
  const std::string dtype = dtype_name(config);
  LanguageModel model = is_gpt2 ? read_gpt2(config) : read_decoder(config, *family, problems);
  config.refuse_unread(
      "it is not known whether this setting changes what the network computes. "
      "If it does not, remove it from config.json");
  if (!problems.empty()) return problems.to_error();
  if (classifies) {
    const int64_t width = model.network.parameters.get_int("n_embd", 0);
    become_classifier(classes, width, model);
  }
  model.family = type;
  model.dtype = dtype;
  return model;
}

}  // namespace trainyard
