// What config.json of a language model means. tests/golden/families.json has the configs and
// tensors that transformers writes for tiny models of every family. The tests fail if a setting is
// lost or misread, if a tensor of a family is not expected or has another shape, or if a setting
// that changes the network is accepted although it cannot be computed.
#include "src/models/families/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json cases = [] {
    std::ifstream file(testing::source_path("tests/golden/families.json"));
    return Json::parse(file);
  }();
  return cases;
}

Json config_of(const std::string& name) { return golden().at(name).at("config"); }

LanguageModel model_of(const Json& config) {
  Result<LanguageModel> model = read_model_config(config.dump());
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : LanguageModel();
}

std::string refusal_of(const Json& config) {
  const Result<LanguageModel> model = read_model_config(config.dump());
  return model.ok() ? "accepted" : model.error().message;
}

Json changed(Json config, const std::string& key, Json value) {
  config[key] = std::move(value);
  return config;
}

TEST(Families, ExpectTheTensorsThatTransformersWrites) {
  for (const auto& [name, expected] : golden().items()) {
    const LanguageModel model = model_of(expected.at("config"));
    std::map<std::string, std::vector<int64_t>> tensors;
    for (const ExpectedTensor& t : model.tensors) tensors[t.name] = t.shape.dims();
    EXPECT_EQ(Json(tensors), expected.at("tensors")) << name;
    EXPECT_EQ(model.vocabulary, 96) << name;
    EXPECT_EQ(model.positions_max, 64) << name;
    EXPECT_EQ(model.dtype, "F32") << name;
  }
}

TEST(Families, ClassifiersHaveALayerOverTheirClasses) {
  Json config = changed(config_of("llama"), "architectures", {"LlamaForSequenceClassification"});
  config["id2label"] = {{"0", "bad"}, {"1", "fair"}, {"2", "good"}};
  const LanguageModel model = model_of(config);
  EXPECT_EQ(model.classes, 3);
  EXPECT_EQ(model.tensors.back().name, "score.weight");
  EXPECT_EQ(model.tensors.back().shape, (Shape{3, 32}));
  EXPECT_EQ(std::ranges::count(model.tensors, "lm_head.weight", &ExpectedTensor::name), 0);
  EXPECT_EQ(model_of(config_of("llama")).classes, 0);
  const std::string regression = refusal_of(changed(config, "id2label", {{"0", "LABEL_0"}}));
  EXPECT_NE(regression.find("id2label"), std::string::npos) << regression;
  EXPECT_NE(regression.find("expected 2 classes or more"), std::string::npos) << regression;
}

TEST(Families, SettingsBecomeParametersOfThePreset) {
  const auto parameters_of = [](const std::string& name) {
    return model_of(config_of(name)).network.parameters;
  };
  const Attributes llama = parameters_of("llama");
  EXPECT_EQ(llama.to_string(),
            "{head_dim=8, hidden=48, n_embd=32, n_head=4, n_kv_head=2, n_layer=4, "
            "norm_epsilon=1e-06, positions_max=64, rope_theta=10000, vocab_size=96}");
  const Attributes biased = parameters_of("llama tied, biases, llama3");
  EXPECT_EQ(biased.to_string(),
            "{head_dim=8, hidden=48, mlp_bias=1, n_embd=32, n_head=4, n_kv_head=2, n_layer=4, "
            "norm_epsilon=1e-06, out_bias=1, positions_max=64, qkv_bias=1, rope_factor=8, "
            "rope_high_freq_factor=4, rope_low_freq_factor=1, rope_original_positions=32, "
            "rope_scaling=\"llama3\", rope_theta=5e+05, tied_head=1, vocab_size=96}");
  EXPECT_EQ(parameters_of("llama linear").get_string("rope_scaling", ""), "linear");
  EXPECT_EQ(parameters_of("llama linear").get_int("head_dim", 0), 16);
  EXPECT_EQ(parameters_of("mistral").get_int("window", 0), 16);
  EXPECT_EQ(parameters_of("mistral").find("window_layers"), nullptr);
  EXPECT_EQ(parameters_of("mistral without window").find("window"), nullptr);
  EXPECT_EQ(parameters_of("qwen2").get_int("qkv_bias", 0), 1);
  EXPECT_EQ(parameters_of("qwen2").find("out_bias"), nullptr);
  EXPECT_EQ(parameters_of("qwen2").find("window"), nullptr) << "use_sliding_window is false";
  const Attributes window = parameters_of("qwen2 window, yarn");
  EXPECT_EQ(window.get_int("window", 0), 8);
  EXPECT_EQ(window.get_ints("window_layers", {}), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(window.get_string("rope_scaling", ""), "yarn");
  EXPECT_DOUBLE_EQ(window.get_float("rope_attention_factor", 0), 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(window.get_int("rope_original_positions", 0), 16);
  EXPECT_EQ(window.get_float("rope_beta_fast", 0), 32);
  EXPECT_EQ(window.get_int("rope_truncate", 0), 1);
  EXPECT_EQ(parameters_of("qwen3").get_string("qk_norm", ""), "head");
  EXPECT_EQ(parameters_of("smollm3").get_ints("no_rope_layers", {}), std::vector<int64_t>{3});
  EXPECT_EQ(parameters_of("smollm3").get_float("rope_theta", 0), 2000000);
  EXPECT_EQ(parameters_of("smollm3").get_int("tied_head", 0), 1);
  const Attributes granite = parameters_of("granite");
  EXPECT_EQ(granite.get_float("embedding_multiplier", 0), 12);
  EXPECT_EQ(granite.get_float("logits_divisor", 0), 8);
  EXPECT_EQ(granite.get_float("residual_multiplier", 0), 0.22);
  EXPECT_EQ(granite.get_float("attention_multiplier", 0), 0.0078125);
  EXPECT_EQ(parameters_of("olmo2").get_string("qk_norm", ""), "all");
  EXPECT_EQ(parameters_of("olmo2").get_string("norm_place", ""), "after");
  EXPECT_EQ(parameters_of("gpt2").to_string(), "{n_embd=32, n_head=4, n_layer=3}");
  EXPECT_EQ(model_of(config_of("gpt2")).network.preset, "gpt2");
}

// transformers 4 wrote rope_theta and rope_scaling where transformers 5 writes rope_parameters.
TEST(Families, BothFormsOfRotarySettingsGiveTheSame) {
  for (const auto& [name, expected] : golden().items()) {
    Json config = expected.at("config");
    if (!config.contains("rope_parameters")) continue;
    const Attributes newer = model_of(config).network.parameters;
    Json rope = config["rope_parameters"];
    config.erase("rope_parameters");
    config["rope_theta"] = rope["rope_theta"];
    rope.erase("rope_theta");
    config["rope_scaling"] = rope["rope_type"] == "default" ? Json() : rope;
    config["torch_dtype"] = config["dtype"];
    config.erase("dtype");
    EXPECT_EQ(model_of(config).network.parameters, newer) << name;
    EXPECT_EQ(model_of(config).dtype, "F32");
    if (config["rope_scaling"].is_null()) continue;
    // The older key of the type.
    config["rope_scaling"]["type"] = config["rope_scaling"]["rope_type"];
    config["rope_scaling"].erase("rope_type");
    EXPECT_EQ(model_of(config).network.parameters, newer) << name;
  }
}

TEST(Families, SettingsThatTransformersDerivesAreDerived) {
  Json config = config_of("llama");
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_parameters", "rms_norm_eps",
                          "tie_word_embeddings", "hidden_act"}) {
    config.erase(key);
  }
  const LanguageModel model = model_of(config);
  EXPECT_EQ(model.network.parameters.get_int("head_dim", 0), 8);
  EXPECT_EQ(model.network.parameters.get_int("n_kv_head", 0), 4);
  EXPECT_EQ(model.network.parameters.get_float("rope_theta", 0), 10000);
  EXPECT_FALSE(model.tied_head);
  Json yarn = config_of("qwen2 window, yarn");
  yarn["rope_parameters"]["mscale"] = 1.0;
  yarn["rope_parameters"]["mscale_all_dim"] = 0.5;
  EXPECT_DOUBLE_EQ(model_of(yarn).network.parameters.get_float("rope_attention_factor", 0),
                   (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1));
  Json layers = config_of("smollm3");
  layers.erase("no_rope_layers");
  EXPECT_EQ(model_of(layers).network.parameters.get_ints("no_rope_layers", {}),
            std::vector<int64_t>{3});
}

TEST(Families, SettingsWithoutEffectAreAccepted) {
  Json config = config_of("llama");
  config.update({{"_name_or_path", "somewhere"},
                 {"use_cache", false},
                 {"pretraining_tp", 1},
                 {"transformers.js_config", {{"dtype", "q4"}}},
                 {"is_llama_config", true},
                 {"rope_interleaved", false},
                 {"num_experts", 0},
                 {"something_new", nullptr},
                 {"another_switch", false}});
  EXPECT_EQ(model_of(config).network.parameters, model_of(config_of("llama")).network.parameters);
  const LanguageModel noted = model_of(changed(config, "attention_dropout", 0.1));
  ASSERT_EQ(noted.notes.size(), 1u);
  EXPECT_EQ(noted.notes[0], "attention_dropout 0.1 of config.json is not applied in training.");
}

struct Refused {
  const char* model;
  const char* key;
  Json value;
  const char* message;
};

TEST(Families, WhatCannotBeComputedIsRefusedByName) {
  const std::vector<Refused> cases = {
      {"llama", "model_type", "gemma3",
       "config.json: model_type: 'gemma3' is not supported, expected llama, mistral, qwen2, qwen3, "
       "smollm3, granite, olmo2 or gpt2"},
      {"llama", "model_type", nullptr, "config.json: model_type: is missing, expected llama,"},
      {"llama",
       "architectures",
       {"LlamaForTokenClassification"},
       "config.json: architectures: is 'LlamaForTokenClassification', expected "
       "LlamaForCausalLM"},
      {"llama",
       "quantization_config",
       {{"quant_method", "awq"}},
       "config.json: quantization_config: says that the weights are quantized by 'awq'; expected "
       "weights in F32, BF16 or F16"},
      {"qwen3", "num_experts", 128,
       "config.json: num_experts: is 128: mixtures of experts are not supported"},
      {"llama", "num_local_experts", 8, "mixtures of experts are not supported"},
      {"llama", "hidden_act", "relu2",
       "config.json: hidden_act: is 'relu2', expected silu, gelu, gelu_new or gelu_pytorch_tanh"},
      {"qwen3",
       "layer_types",
       {"linear_attention", "linear_attention", "full_attention", "full_attention"},
       "config.json: layer_types: has 'linear_attention', expected full_attention or "
       "sliding_attention"},
      {"qwen3",
       "layer_types",
       {"full_attention"},
       "config.json: layer_types: has 1 entries, expected 4, one for each layer"},
      {"llama",
       "rope_parameters",
       {{"rope_type", "longrope"}, {"short_factor", {1, 2}}},
       "config.json: rope_parameters.rope_type: is 'longrope', expected default, linear, llama3 or "
       "yarn"},
      {"llama",
       "rope_scaling",
       {{"type", "dynamic"}, {"factor", 2}},
       "config.json: rope_scaling.rope_type: is 'dynamic', expected"},
      {"llama",
       "rope_parameters",
       {{"rope_type", "linear"}},
       "config.json: rope_parameters.factor: is missing, expected a number above 0"},
      {"llama",
       "rope_parameters",
       {{"rope_type", "default"}, {"llama_4_scaling_beta", 0.1}},
       "config.json: rope_parameters.llama_4_scaling_beta: is 0.1; this setting of rotary "
       "positions "
       "is not known"},
      {"llama", "rope_parameters", 3, "config.json: rope_parameters: is 3, expected an object"},
      {"llama", "partial_rotary_factor", 0.5,
       "config.json: partial_rotary_factor: rotates a part of each head"},
      {"llama", "rope_theta", 7,
       "config.json: rope_theta: differs from rope_parameters.rope_theta"},
      {"llama", "rope_interleaved", true,
       "config.json: rope_interleaved: is true, which is not supported"},
      {"llama", "vocab_size", nullptr,
       "config.json: vocab_size: is missing, expected a whole number from 2 to 4194304"},
      {"llama", "hidden_size", "wide",
       "config.json: hidden_size: is 'wide', expected a whole number"},
      {"llama", "num_hidden_layers", 1e30, "config.json: num_hidden_layers: is 1e+30, expected"},
      {"llama", "num_hidden_layers", 18446744073709551615u,
       "config.json: num_hidden_layers: is 18"},
      {"llama", "num_key_value_heads", 3,
       "config.json: num_key_value_heads: 3 does not divide the 4 heads of num_attention_heads"},
      {"llama", "final_logit_softcapping", 30.0,
       "config.json: final_logit_softcapping: is 30.0; it is not known whether this setting "
       "changes "
       "what the network computes"},
      {"qwen2", "attention_bias", true, "config.json: attention_bias: is true; it is not known"},
      {"gpt2", "n_inner", 100, "config.json: n_inner: is 100, expected four times n_embd, 128"},
      {"gpt2", "activation_function", "relu", "config.json: activation_function: is 'relu'"},
      {"gpt2", "activation_function", "gelu",
       "config.json: activation_function: is not supported, expected gelu_new"},
      {"gpt2", "layer_norm_epsilon", 1e-6, "config.json: layer_norm_epsilon: is not supported"},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true,
       "config.json: scale_attn_by_inverse_layer_idx: is true, which is not supported"},
      {"gpt2", "embd_pdrop", 0.3, "config.json: resid_pdrop: expected the same share"},
  };
  for (const Refused& refused : cases) {
    const std::string message =
        refusal_of(changed(config_of(refused.model), refused.key, refused.value));
    EXPECT_TRUE(message.starts_with(refused.message) ||
                message.find(refused.message) != std::string::npos)
        << refused.key << ": " << message;
  }
}

TEST(Families, AllProblemsAreReportedTogether) {
  Json config = config_of("llama");
  config.update({{"num_experts", 4}, {"hidden_act", "relu"}, {"hidden_size", nullptr}});
  const Result<LanguageModel> model = read_model_config(config.dump());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().violations.size(), 3u);
  EXPECT_NE(model.error().message.find("(and 2 more problems)"), std::string::npos);
  for (const char* text : {"", "[]", "{", "{\"model_type\": 3}"}) {
    EXPECT_FALSE(read_model_config(text).ok()) << text;
  }
}

class CheckTensors : public ::testing::Test {
 protected:
  std::string check() {
    std::vector<TensorShape> list;
    for (const auto& [name, shape] : tensors_) list.push_back({name, shape});
    const Status status = check_tensors(model_, list);
    return status.ok() ? "" : status.error().message;
  }
  void read(const std::string& name) {
    model_ = model_of(config_of(name));
    tensors_.clear();
    for (const ExpectedTensor& t : model_.tensors) tensors_.emplace(t.name, t.shape);
  }

  LanguageModel model_;
  std::map<std::string, Shape> tensors_;
};

TEST_F(CheckTensors, NamesWithAndWithoutThePrefixFit) {
  read("llama");
  EXPECT_EQ(check(), "");
  std::map<std::string, Shape> bare;
  for (const auto& [name, shape] : tensors_) {
    bare.emplace(name.starts_with("model.") ? name.substr(6) : name, shape);
  }
  tensors_ = bare;
  EXPECT_EQ(check(), "");
  // Files of old versions of transformers have this table.
  tensors_.emplace("model.layers.0.self_attn.rotary_emb.inv_freq", Shape{4});
  EXPECT_EQ(check(), "");
}

TEST_F(CheckTensors, TheWrongTensorIsNamed) {
  read("llama");
  tensors_.erase("lm_head.weight");
  EXPECT_EQ(check(),
            "tensor 'lm_head.weight' is missing: config.json says tie_word_embeddings: false, so "
            "the last layer has a table of its own");
  read("llama");
  tensors_.erase("model.layers.2.mlp.up_proj.weight");
  EXPECT_EQ(check(),
            "tensor 'model.layers.2.mlp.up_proj.weight' is missing, which config.json needs");
  read("olmo2");
  tensors_.at("model.layers.1.self_attn.k_norm.weight") = Shape{8};
  EXPECT_EQ(check(),
            "tensor 'model.layers.1.self_attn.k_norm.weight' has the shape [8], expected [16] by "
            "config.json");
  read("mistral");
  tensors_.emplace("model.layers.0.self_attn.q_proj.bias", Shape{32});
  EXPECT_EQ(check(),
            "tensor 'model.layers.0.self_attn.q_proj.bias' is not of the network that config.json "
            "describes (Mistral)");
  read("qwen2");  // whose head is tied
  tensors_.emplace("lm_head.weight", Shape{96, 32});
  EXPECT_EQ(check(), "");
}

}  // namespace
}  // namespace trainyard
