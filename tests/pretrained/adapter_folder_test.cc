#include "src/pretrained/adapter_folder.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/weights_file.h"
#include "src/models/lora.h"
#include "tests/data/temporary_folder.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// What peft 0.21 writes for an adapter of SmolLM2, less a few settings without effect.
Json peft_config() {
  return {{"peft_type", "LORA"},
          {"r", 16},
          {"lora_alpha", 32},
          {"lora_dropout", 0.05},
          {"use_rslora", true},
          {"use_dora", false},
          {"bias", "none"},
          {"target_modules", {"q_proj", "down_proj"}},
          {"modules_to_save", nullptr},
          {"rank_pattern", Json::object()},
          {"layers_to_transform", nullptr},
          {"fan_in_fan_out", false},
          {"base_model_name_or_path", "SmolLM2"},
          {"task_type", "CAUSAL_LM"},
          {"inference_mode", true}};
}

class Adapter : public ::testing::Test {
 protected:
  Result<AdapterFolder> read(const Json& config) {
    folder_.write("adapter_config.json", config.dump());
    return read_adapter_folder(folder_.path());
  }
  std::string refusal(const std::string& key, Json value) {
    write_tensor("adapter_model.safetensors", "a");
    Json config = peft_config();
    config[key] = std::move(value);
    const auto adapter = read(config);
    return adapter.ok() ? "accepted" : adapter.error().message;
  }
  fs::path write_tensor(const std::string& file, const std::string& tensor) {
    const TensorView view{tensor, {Shape{2}, DType::kF32}, std::as_bytes(std::span(numbers_))};
    EXPECT_TRUE(write_safetensors(local_files(), folder_ / file, {{view}}, {}).ok());
    return folder_ / file;
  }

  TemporaryFolder folder_;
  std::array<float, 2> numbers_ = {1, 2};
};

TEST_F(Adapter, HasTheSettingsOfItsConfig) {
  write_tensor("adapter_model.safetensors", "a");
  const auto adapter = read(peft_config());
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  EXPECT_EQ(adapter->lora.rank, 16);
  EXPECT_EQ(adapter->lora.alpha, 32);
  EXPECT_EQ(adapter->lora.dropout, 0.05);
  EXPECT_EQ(adapter->lora.rank_scaling, "sqrt");
  EXPECT_EQ(adapter->lora.targets, (std::vector<std::string>{"q_proj", "down_proj"}));
}

TEST_F(Adapter, RefusesByNameWhatItCannotCompute) {
  EXPECT_NE(refusal("use_dora", true).find("use_dora"), std::string::npos);
  EXPECT_NE(refusal("bias", "all").find("bias"), std::string::npos);
  EXPECT_NE(refusal("peft_type", "IA3").find("peft_type"), std::string::npos);
  EXPECT_NE(refusal("modules_to_save", {"lm_head"}).find("modules_to_save"), std::string::npos);
  EXPECT_NE(refusal("rank_pattern", {{"q_proj", 8}}).find("rank_pattern"), std::string::npos);
  EXPECT_NE(refusal("layers_to_transform", {1}).find("layers_to_transform"), std::string::npos);
  EXPECT_NE(refusal("target_modules", {"experts"}).find("experts"), std::string::npos);
  EXPECT_NE(refusal("target_modules", ".*_proj").find("pattern"), std::string::npos);
  EXPECT_NE(refusal("r", 0).find("r"), std::string::npos);
}

TEST_F(Adapter, NeedsItsWeights) {
  const auto adapter = read(peft_config());
  ASSERT_FALSE(adapter.ok());
  EXPECT_EQ(adapter.error().reason, "FILE_NOT_FOUND");
}

TEST_F(Adapter, IsOneListOfTensorsWithTheModelsWeights) {
  const fs::path weights = write_tensor("model.safetensors", "w");
  const fs::path adapter = write_tensor("adapter_model.safetensors", "a");
  fs::create_directory(folder_ / "joined");
  const auto index = join_adapter(weights, adapter, folder_ / "joined");
  ASSERT_TRUE(index.ok()) << index.error().message;
  const auto file = WeightsFile::open(*index);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "w");
  EXPECT_EQ(file->tensors()[1].name, "a");
}

TEST(LoraTargetOf, IsTheLayerOrAllLayersOfAModule) {
  EXPECT_EQ(lora_target_of("q_proj"), "q_proj");
  EXPECT_EQ(lora_target_of("all-linear"), "all-linear");
  EXPECT_EQ(lora_target_of("model.layers.12.mlp.down_proj"), "h12_down");
  EXPECT_EQ(lora_target_of("transformer.h.3.attn.c_proj"), "h3_attn_proj");
  EXPECT_EQ(lora_target_of("transformer.h.3.mlp.c_proj"), "h3_mlp_proj");
  EXPECT_EQ(lora_target_of("lm_head"), "lm_head");
  EXPECT_EQ(lora_target_of("model.layers.mlp.down_proj"), std::nullopt);
  EXPECT_EQ(lora_target_of("query"), std::nullopt);
}

}  // namespace
}  // namespace trainyard
