#include "src/pretrained/gguf/gguf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/join.h"
#include "src/base/text.h"
#include "src/models/families/config_object.h"
#include "src/pretrained/gguf/rope_factors.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSizeMax = int64_t{1} << 30;
constexpr const char* kTableTensor = "token_embd.weight";
constexpr uint64_t kListMax = 1024;  // the longest array of settings is one number for each layer

constexpr std::array kArchitectures = std::to_array<GgufArchitecture>({
    {.name = "llama", .family = "llama", .pairs_rotary = true, .has_mlp_bias_setting = true},
    {.name = "qwen2", .family = "qwen2", .has_bias_setting = false},
    {.name = "qwen3", .family = "qwen3"},
    {.name = "smollm3", .family = "smollm3", .pairs_rotary = true, .has_mlp_bias_setting = true},
    {.name = "granite",
     .family = "granite",
     .pairs_rotary = true,
     .has_mlp_bias_setting = true,
     .has_multipliers = true},
    {.name = "olmo2", .family = "olmo2"},
    {.name = "gpt2", .family = "gpt2"},
});

Error unsupported_gguf(std::string_view key, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_UNSUPPORTED",
                    std::string(key) + ": " + what);
}

/// Returns the number that was meant: 1e-05 for the F32 that is nearest to it.
double shortest(float value) {
  std::array<char, 40> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = static_cast<double>(value);
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

Json json_of(const GgufValue& value) {
  if (const auto flag = value.flag()) return *flag;
  if (const auto number = value.integer()) return *number;
  if (const auto text = value.text()) return std::string(*text);
  if (const auto real = value.real()) {
    return value.type == GgufType::kF32 ? shortest(static_cast<float>(*real)) : *real;
  }
  if (value.count > kListMax) return "an array of " + std::to_string(value.count);
  // A list of equal numbers, one for each layer, is as good as one number.
  Json list = Json::array();
  for (const GgufValue& element : value.elements()) list.push_back(json_of(element));
  const bool equal = !list.empty() && std::ranges::all_of(list, [&](const Json& element) {
    return element == list.front();
  });
  return equal ? Json(list.front()) : list;
}

/// Returns the settings whose keys begin with the architecture's name, by the rest of the keys.
Json settings_of(const GgufFile& file, std::string_view prefix) {
  Json settings = Json::object();
  for (const auto& [key, value] : file.settings()) {
    if (key.starts_with(prefix)) settings[key.substr(prefix.size())] = json_of(value);
  }
  return settings;
}

int64_t table_rows(const GgufFile& file, ConfigObject& settings) {
  const int64_t rows = file.find_tensor(kTableTensor)->rows();
  if (const int64_t said = settings.integer("vocab_size", 1, kSizeMax, rows); said != rows) {
    settings.refuse("vocab_size", "is " + std::to_string(said) + ", but the tensor '" +
                                      kTableTensor + "' has " + std::to_string(rows) + " rows");
  }
  return rows;
}

/// Settings by which the networks of an architecture become others.
void check_plain(ConfigObject& settings) {
  settings.expect_flag("attention.causal", true);
  settings.expect_flag("use_parallel_residual", false);
  for (const std::string_view key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                                     "rope.scaling.yarn_ext_factor"}) {
    if (settings.positive(key, 1) != 1) settings.refuse(key, "is not supported, expected 1");
  }
  for (const std::string_view key : {"rope.scaling.finetuned", "tensor_data_layout"}) {
    settings.ignore(key);
  }
}

Json rotary_scaling(const GgufFile& file, ConfigObject& settings, int64_t head_dim, double theta) {
  const double old_factor = settings.positive("rope.scale_linear", 1);
  const std::string type = settings.text("rope.scaling.type", old_factor != 1 ? "linear" : "none");
  const double factor = settings.positive("rope.scaling.factor", old_factor);
  const int64_t original =
      settings.integer("rope.scaling.original_context_length", 0, kConfigPositionsMax, 0);
  const double fast = settings.positive("rope.scaling.yarn_beta_fast", 32);
  const double slow = settings.positive("rope.scaling.yarn_beta_slow", 1);
  if (const GgufTensor* factors = file.find_tensor(kRopeFactorsTensor)) {
    const auto found = find_llama3_scaling(*factors, head_dim, theta);
    if (!found || type != "none") {
      settings.refuse("rope.scaling", "the tensor '" + std::string(kRopeFactorsTensor) +
                                          "' scales rotary positions in a way that is not "
                                          "known, expected that of Llama 3.1 to 3.3");
      return nullptr;
    }
    return found->factor == 1 ? Json() : llama3_config(*found);
  }
  if (type == "none") return nullptr;
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (type == "yarn") {
    if (original == 0) settings.refuse("rope.scaling.original_context_length", "is missing");
    return {{"rope_type", "yarn"},
            {"factor", factor},
            {"original_max_position_embeddings", original},
            {"beta_fast", fast},
            {"beta_slow", slow}};
  }
  settings.refuse("rope.scaling.type",
                  "is " + quoted_value(type) + ", expected none, linear or yarn");
  return nullptr;
}

void add_rotary(const GgufFile& file, ConfigObject& settings, int64_t head_dim, Json& config) {
  const double theta = settings.positive("rope.freq_base", 10000);
  config["rope_theta"] = theta;
  if (Json scaling = rotary_scaling(file, settings, head_dim, theta); !scaling.is_null()) {
    config["rope_scaling"] = std::move(scaling);
  }
  if (const int64_t turned = settings.integer("rope.dimension_count", 1, kSizeMax, head_dim);
      turned != head_dim) {
    settings.refuse(
        "rope.dimension_count",
        "is " + std::to_string(turned) + ", expected the whole head, " + std::to_string(head_dim));
  }
}

void add_multipliers(ConfigObject& settings, Json& config) {
  for (const auto& [key, name] : {std::pair("embedding_scale", "embedding_multiplier"),
                                  std::pair("residual_scale", "residual_multiplier"),
                                  std::pair("attention.scale", "attention_multiplier"),
                                  std::pair("logit_scale", "logits_scaling")}) {
    config[name] = settings.positive(key);
  }
}

Json decoder_config(const GgufFile& file, ConfigObject& settings, const GgufArchitecture& a) {
  const int64_t width = settings.integer("embedding_length", 1, kSizeMax);
  const int64_t heads = settings.integer("attention.head_count", 1, kSizeMax);
  const int64_t head_dim =
      settings.integer("attention.key_length", 1, kSizeMax, std::max<int64_t>(width / heads, 1));
  if (settings.integer("attention.value_length", 1, kSizeMax, head_dim) != head_dim) {
    settings.refuse("attention.value_length", "differs from attention.key_length");
  }
  Json config = {
      {"model_type", a.family},
      {"num_hidden_layers", settings.integer("block_count", 1, kSizeMax)},
      {"hidden_size", width},
      {"intermediate_size", settings.integer("feed_forward_length", 1, kSizeMax)},
      {"num_attention_heads", heads},
      {"num_key_value_heads", settings.integer("attention.head_count_kv", 1, kSizeMax, heads)},
      {"head_dim", head_dim},
      {"max_position_embeddings", settings.integer("context_length", 1, kConfigPositionsMax)},
      {"rms_norm_eps", settings.positive("attention.layer_norm_rms_epsilon")},
      {"vocab_size", table_rows(file, settings)},
      {"tie_word_embeddings", file.find_tensor("output.weight") == nullptr}};
  if (a.has_bias_setting) {
    config["attention_bias"] = file.find_tensor("blk.0.attn_q.bias") != nullptr;
  }
  if (a.has_mlp_bias_setting) {
    config["mlp_bias"] = file.find_tensor("blk.0.ffn_gate.bias") != nullptr;
  }
  const bool is_llama = a.name == "llama";
  if (is_llama && settings.has("attention.sliding_window")) {
    config["model_type"] = "mistral";
    config["sliding_window"] = settings.integer("attention.sliding_window", 1, kConfigPositionsMax);
    config.erase("attention_bias");
    config.erase("mlp_bias");
  }
  if (a.has_multipliers) add_multipliers(settings, config);
  add_rotary(file, settings, head_dim, config);
  return config;
}

Json gpt2_config(const GgufFile& file, ConfigObject& settings) {
  const int64_t heads = settings.integer("attention.head_count", 1, kSizeMax);
  if (settings.integer("attention.head_count_kv", 1, kSizeMax, heads) != heads) {
    settings.refuse("attention.head_count_kv", "differs from attention.head_count");
  }
  return {{"model_type", "gpt2"},
          {"n_layer", settings.integer("block_count", 1, kSizeMax)},
          {"n_embd", settings.integer("embedding_length", 1, kSizeMax)},
          {"n_inner", settings.integer("feed_forward_length", 1, kSizeMax)},
          {"n_head", heads},
          {"n_positions", settings.integer("context_length", 1, kConfigPositionsMax)},
          {"layer_norm_epsilon", settings.positive("attention.layer_norm_epsilon")},
          {"vocab_size", table_rows(file, settings)}};
}

/// Refuses files that have something else than a whole model.
Status check_whole(const GgufFile& file) {
  ASSIGN_OR_RETURN(const auto type, file.text("general.type"));
  if (type && *type != "model") {
    return unsupported_gguf("general.type", "is " + quoted_value(*type) + ", expected model");
  }
  ASSIGN_OR_RETURN(const auto parts, file.index("split.count", 65535));
  if (parts.value_or(1) > 1) {
    return unsupported_gguf("split.count", "the model is in " + std::to_string(*parts) +
                                               " files, expected one; 'llama-gguf-split --merge' "
                                               "joins them");
  }
  ASSIGN_OR_RETURN(const auto version, file.index("general.quantization_version", kSizeMax));
  if (version.value_or(2) == 2 || version == 0) return {};
  return unsupported_gguf("general.quantization_version",
                          "is " + std::to_string(*version) + ", expected 2");
}

}  // namespace

Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file) {
  ASSIGN_OR_RETURN(const auto name, file.text("general.architecture"));
  if (!name) return gguf_error("general.architecture", "is missing");
  const auto* const found = std::ranges::find(kArchitectures, *name, &GgufArchitecture::name);
  if (found == kArchitectures.end()) {
    std::vector<std::string> names;
    for (const GgufArchitecture& a : kArchitectures) names.emplace_back(a.name);
    return unsupported_gguf("general.architecture",
                            quoted_value(*name) + " is not supported, expected " + joined(names));
  }
  if (Status s = check_whole(file); !s.ok()) return std::move(s).error();
  return found;
}

Result<std::string> gguf_config(const GgufFile& file, const GgufArchitecture& architecture) {
  const GgufTensor* const table = file.find_tensor(kTableTensor);
  if (table == nullptr || table->shape.rank() != 2) {
    return gguf_error("tensor " + quoted_value(kTableTensor),
                      table == nullptr ? "is missing" : "expected two dimensions");
  }
  const std::string prefix = std::string(architecture.name) + ".";
  const Json json = settings_of(file, prefix);
  Violations problems;
  ConfigObject settings(json, prefix, problems);
  const Json config = architecture.name == "gpt2" ? gpt2_config(file, settings)
                                                  : decoder_config(file, settings, architecture);
  check_plain(settings);
  settings.refuse_unread("it is not known whether this setting changes what the network computes");
  if (!problems.empty()) return problems.to_error();
  return config.dump(2);
}

}  // namespace trainyard
