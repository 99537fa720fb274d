// The config.json of an exported network. tests/golden/families.json has the configs that
// transformers writes; what is read from one and written again must be the same network of the same
// family, and a network that no family has must not become another one.
#include "src/models/families/config_writer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

Json golden_configs() {
  std::ifstream file(testing::source_path("tests/golden/families.json"));
  return Json::parse(file);
}

LanguageModel read_ok(const std::string& text) {
  Result<LanguageModel> model = read_model_config(text);
  EXPECT_TRUE(model.ok()) << model.error().message << "\n" << text;
  return model.ok() ? std::move(model).value() : LanguageModel();
}

std::vector<std::string> tensor_names(const LanguageModel& model) {
  std::vector<std::string> names;
  for (const ExpectedTensor& t : model.tensors) names.push_back(t.name + t.shape.to_string());
  return names;
}

ModelSpec decoder_of(std::initializer_list<std::pair<const std::string, Attribute>> parameters) {
  ModelSpec network;
  network.preset = "decoder";
  network.parameters = Attributes(parameters);
  return network;
}

std::string family_of(const ModelSpec& network) {
  const auto written = write_model_config(network, {.vocabulary = 96, .positions = 64});
  return written.ok() ? written->family : written.error().reason;
}

TEST(ConfigWriter, WritesTheFamilyAndNetworkThatItWasReadFrom) {
  const Json golden = golden_configs();
  for (const auto& [name, expected] : golden.items()) {
    const LanguageModel model = read_ok(expected.at("config").dump());
    const auto written = write_model_config(
        model.network, {.vocabulary = model.vocabulary, .positions = model.positions_max});
    ASSERT_TRUE(written.ok()) << name << ": " << written.error().message;
    const LanguageModel again = read_ok(written->text);
    EXPECT_EQ(tensor_names(again), tensor_names(model)) << name;
    EXPECT_EQ(again.positions_max, model.positions_max) << name;
    // Mistral without a window is Llama's network, and so is every other one that has no feature of
    // its own.
    if (written->family != "llama") {
      EXPECT_EQ(written->family, model.family) << name;
    }
  }
}

TEST(ConfigWriter, HasTheSpecialTokens) {
  const ModelSpec network = decoder_of({{"n_layer", int64_t{1}}});
  const auto written = write_model_config(
      network, {.vocabulary = 96, .positions = 64, .begin_token = 1, .end_token = 2});
  ASSERT_TRUE(written.ok()) << written.error().message;
  const Json config = Json::parse(written->text);
  EXPECT_EQ(config.at("bos_token_id"), 1);
  EXPECT_EQ(config.at("eos_token_id"), 2);
  EXPECT_TRUE(config.at("pad_token_id").is_null());
  EXPECT_EQ(config.at("vocab_size"), 96);
  EXPECT_EQ(config.at("max_position_embeddings"), 64);
}

TEST(ConfigWriter, NamesTheClassesOfAClassifier) {
  ConfigSettings settings{.vocabulary = 96, .positions = 64, .padding_token = 5};
  settings.classes = {"bad", "good"};
  const auto written = write_model_config(decoder_of({{"n_layer", int64_t{1}}}), settings);
  ASSERT_TRUE(written.ok()) << written.error().message;
  const Json config = Json::parse(written->text);
  EXPECT_EQ(config.at("architectures"), Json::array({"LlamaForSequenceClassification"}));
  EXPECT_EQ(config.at("id2label"), (Json{{"0", "bad"}, {"1", "good"}}));
  EXPECT_EQ(config.at("label2id"), (Json{{"bad", 0}, {"good", 1}}));
  EXPECT_EQ(config.at("pad_token_id"), 5);
  EXPECT_EQ(read_ok(written->text).classes, 2);
  // transformers has no classifier of Granite's network.
  const auto granite = write_model_config(decoder_of({{"residual_multiplier", 0.5}}), settings);
  ASSERT_FALSE(granite.ok());
  EXPECT_EQ(granite.error().reason, "EXPORT_UNSUPPORTED");
}

TEST(ConfigWriter, ChoosesAFamilyThatHasTheNetworksFeatures) {
  EXPECT_EQ(family_of(decoder_of({})), "llama");
  EXPECT_EQ(family_of(decoder_of({{"window", int64_t{8}}})), "mistral");
  EXPECT_EQ(family_of(decoder_of({{"qkv_bias", int64_t{1}}})), "qwen2");
  EXPECT_EQ(family_of(decoder_of({{"qk_norm", std::string("head")}})), "qwen3");
  EXPECT_EQ(family_of(decoder_of({{"logits_divisor", 8.0}})), "granite");
  EXPECT_EQ(family_of(decoder_of(
                {{"qk_norm", std::string("all")}, {"norm_place", std::string("after")}})),
            "olmo2");
  EXPECT_EQ(family_of(decoder_of({{"no_rope_layers", std::vector<int64_t>{3}}})), "smollm3");
}

TEST(ConfigWriter, RefusesANetworkThatNoFamilyHas) {
  EXPECT_EQ(family_of(decoder_of({{"norm", std::string("layer")}})), "EXPORT_UNSUPPORTED");
  EXPECT_EQ(family_of(decoder_of({{"rope_dim", int64_t{32}}})), "EXPORT_UNSUPPORTED");
  EXPECT_EQ(family_of(decoder_of({{"qk_norm", std::string("all")}, {"window", int64_t{8}}})),
            "EXPORT_UNSUPPORTED");
  ModelSpec other;
  other.preset = "mlp";
  const auto refused = write_model_config(other, {.vocabulary = 96, .positions = 64});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("mlp"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace trainyard
