// The weight files of torchvision, timm and transformers initialize the presets: every tensor of a
// model is found under the library's names with the right arrangement, and files that fit another
// network are refused with its name. tests/golden/library_names.json has the names and shapes that
// the libraries write. A row that is missing from the tables of src/models/naming fails here.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/models/families/family.h"
#include "src/planning/weight_match.h"
#include "tests/engine/model_support.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using testing::layer;
using testing::layers;
using testing::preset;

constexpr int64_t kClasses = 7, kVocabulary = 60;

std::vector<FileTensor> file_of(const std::string& name) {
  static const nlohmann::json files = [] {
    std::ifstream file(testing::source_path("tests/golden/library_names.json"));
    return nlohmann::json::parse(file);
  }();
  std::vector<FileTensor> tensors;
  for (const auto& [tensor, shape] : files.at(name).items()) {
    tensors.push_back(
        {tensor, shape.empty() ? "I64" : "F32", Shape(shape.get<std::vector<int64_t>>())});
  }
  return tensors;
}

ModelInterface images(int64_t side) { return {{3, side, side}, 0, TargetForm::kClass, kClasses}; }
ModelInterface text(int64_t context) {
  return {{context}, kVocabulary, TargetForm::kNextToken, kVocabulary};
}

std::vector<TensorInfo> tensors_of(const ModelSpec& spec, const ModelInterface& interface) {
  const Model model = testing::build(spec, interface);
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& t : model.graph.tensors()) {
    if (t.role == Role::kParameter || t.role == Role::kState) tensors.push_back(t);
  }
  return tensors;
}

InitialWeights weights(bool partial = false) {
  InitialWeights spec{.source = "hub.safetensors"};
  spec.partial = partial;
  return spec;
}

std::string refusal_of(const InitialWeights& spec, const std::vector<FileTensor>& file,
                       const std::vector<TensorInfo>& model) {
  const auto match = match_weights(spec, file, model);
  return match.ok() ? "accepted" : match.error().message;
}

void expect_text(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
}

const ModelSpec kGpt2 =
    preset("gpt2", {{"n_layer", int64_t{2}}, {"n_head", int64_t{3}}, {"n_embd", int64_t{12}}});

struct LibraryFile {
  std::string file;
  ModelSpec model;
  ModelInterface interface;
  std::string naming, normalize;
};

class OfLibrary : public ::testing::TestWithParam<LibraryFile> {};

TEST_P(OfLibrary, EveryTensorOfThePresetIsFound) {
  const LibraryFile& c = GetParam();
  const std::vector<FileTensor> file = file_of(c.file);
  const std::vector<TensorInfo> model = tensors_of(c.model, c.interface);
  const auto match = match_weights(weights(), file, model);
  ASSERT_TRUE(match.ok()) << match.error().message;
  const InitialWeightsReport& report = match->report;
  EXPECT_EQ(report.taken.size(), model.size());
  EXPECT_EQ(report.missing, std::vector<std::string>());
  EXPECT_EQ(report.unused, std::vector<std::string>());
  EXPECT_EQ(report.naming, c.naming);
  EXPECT_EQ(report.normalize, c.normalize);
  size_t used = report.unneeded.size();
  for (const TakenWeight& taken : match->taken) used += taken.source.tensors.size();
  EXPECT_EQ(used, file.size()) << "a tensor is used twice";
}

const std::string kResNet = "torchvision's or timm's ResNet", kImageNet = "imagenet";
INSTANTIATE_TEST_SUITE_P(
    All, OfLibrary,
    ::testing::Values(
        LibraryFile{"torchvision resnet18", preset("resnet18"), images(224), kResNet, kImageNet},
        LibraryFile{"torchvision resnet50", preset("resnet50"), images(224), kResNet, kImageNet},
        LibraryFile{"timm resnet18", preset("resnet18"), images(224), kResNet, kImageNet},
        LibraryFile{"transformers resnet18", preset("resnet18"), images(224),
                    "transformers' ResNet", kImageNet},
        LibraryFile{"transformers resnet50", preset("resnet50"), images(224),
                    "transformers' ResNet", kImageNet},
        LibraryFile{"torchvision vgg11", preset("vgg11"), images(224), "torchvision's VGG",
                    kImageNet},
        LibraryFile{"torchvision vgg11_bn", preset("vgg11", {{"batch_normalization", int64_t{1}}}),
                    images(224), "torchvision's VGG", kImageNet},
        LibraryFile{"timm vgg11", preset("vgg11"), images(224), "timm's VGG", kImageNet},
        LibraryFile{"torchvision vit_tiny", preset("vit_tiny"), images(32), "torchvision's ViT",
                    kImageNet},
        LibraryFile{"timm vit_tiny", preset("vit_tiny"), images(32), "timm's ViT",
                    "minus_one_to_one"},
        LibraryFile{"transformers vit_tiny", preset("vit_tiny"), images(32), "transformers' ViT",
                    "minus_one_to_one"},
        LibraryFile{"transformers gpt2", kGpt2, text(16), "transformers' GPT-2", ""},
        LibraryFile{"transformers gpt2 without a head", kGpt2, text(16), "transformers' GPT-2",
                    ""}),
    [](const auto& c) {
      std::string name = c.param.file;
      std::ranges::replace(name, ' ', '_');
      return name;
    });

const TakenWeight& taken(const WeightMatch& match, std::string_view name) {
  return *std::ranges::find(match.taken, name, &TakenWeight::name);
}

TEST(WeightNames, ArrangementsAreThoseOfTheLibraries) {
  const auto gpt2 =
      match_weights(weights(), file_of("transformers gpt2"), tensors_of(kGpt2, text(16)));
  ASSERT_TRUE(gpt2.ok()) << gpt2.error().message;
  EXPECT_EQ(taken(*gpt2, "h0_attn_proj.weight").source.arrangement, Arrangement::kTransposed)
      << "a square matrix, of which the shape does not say that it is transposed";
  EXPECT_EQ(taken(*gpt2, "h0_attn_proj.bias").source.arrangement, Arrangement::kSame);

  const std::vector<FileTensor> file = file_of("transformers vit_tiny");
  const auto vit = match_weights(weights(), file, tensors_of(preset("vit_tiny"), images(32)));
  ASSERT_TRUE(vit.ok()) << vit.error().message;
  std::vector<std::string> parts;
  for (const size_t i : taken(*vit, "h11_attn_qkv.weight").source.tensors) {
    parts.push_back(file[i].name);
  }
  const std::string stem = "vit.encoder.layer.11.attention.attention.";
  EXPECT_EQ(parts, (std::vector<std::string>{stem + "query.weight", stem + "key.weight",
                                             stem + "value.weight"}));
}

TEST(WeightNames, WhatIsLeftIsReportedWithTheReason) {
  InitialWeights spec = weights();
  spec.exclude = {"fc.*"};
  const auto match = match_weights(spec, file_of("torchvision resnet18"),
                                   tensors_of(preset("resnet18"), images(224)));
  ASSERT_TRUE(match.ok()) << match.error().message;
  EXPECT_EQ(match->report.taken.size(), 100u);
  EXPECT_EQ(match->report.left_out, (std::vector<std::string>{"fc.weight", "fc.bias"}));
  ASSERT_EQ(match->report.unneeded.size(), 20u);
  EXPECT_EQ(match->report.unneeded[0], "bn1.num_batches_tracked (a counter)");

  const auto vit = match_weights(weights(), file_of("transformers vit_tiny without a head"),
                                 tensors_of(preset("vit_tiny"), images(32)));
  ASSERT_TRUE(vit.ok()) << vit.error().message;
  EXPECT_EQ(vit->report.missing, (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_EQ(
      vit->report.unneeded,
      (std::vector<std::string>{"pooler.dense.bias (a pooler, which the preset does not have)",
                                "pooler.dense.weight (a pooler, which the preset does not have)"}));

  std::vector<FileTensor> masks = file_of("transformers gpt2 without a head");
  masks.push_back({"h.0.attn.bias", "F32", Shape{1, 1, 16, 16}});
  masks.push_back({"h.0.attn.masked_bias", "F32", Shape({})});
  masks.push_back({"lm_head.weight", "F32", Shape{60, 12}});
  const auto gpt2 = match_weights(weights(), masks, tensors_of(kGpt2, text(16)));
  ASSERT_TRUE(gpt2.ok()) << gpt2.error().message;
  EXPECT_EQ(gpt2->report.unused, std::vector<std::string>());
  EXPECT_EQ(gpt2->report.unneeded.size(), 3u);
}

TEST(WeightNames, AShorterContextTakesTheFirstPositions) {
  const auto match =
      match_weights(weights(), file_of("transformers gpt2"), tensors_of(kGpt2, text(10)));
  ASSERT_TRUE(match.ok()) << match.error().message;
  EXPECT_EQ(std::ranges::count(match->report.taken, "wpe.weight (the first 10 of 16 rows)"), 1);
  expect_text(refusal_of(weights(), file_of("transformers gpt2"), tensors_of(kGpt2, text(20))),
              "wpe.weight [16, 12] where [20, 12] is needed");
}

TEST(WeightNames, APrefixOfAllNamesIsKnownOrRenamed) {
  const std::vector<TensorInfo> model = tensors_of(preset("resnet18"), images(224));
  std::vector<FileTensor> wrapped = file_of("torchvision resnet18");
  for (FileTensor& t : wrapped) t.name = "module." + t.name;  // as nn.DataParallel does
  const auto match = match_weights(weights(), wrapped, model);
  ASSERT_TRUE(match.ok()) << match.error().message;
  EXPECT_EQ(match->taken.size(), 102u);
  for (FileTensor& t : wrapped) t.name = "backbone." + t.name.substr(7);
  EXPECT_NE(refusal_of(weights(), wrapped, model), "accepted");
  InitialWeights spec = weights();
  spec.rename = {{"backbone.", ""}};
  const auto renamed = match_weights(spec, wrapped, model);
  ASSERT_TRUE(renamed.ok()) << renamed.error().message;
  EXPECT_EQ(renamed->taken.size(), 102u);
}

// A part of the names is the same by chance: conv1 and bn1 of every ResNet.
TEST(WeightNames, AFileOfWhichMostWouldStayUnusedIsRefused) {
  std::vector<FileTensor> file = file_of("torchvision resnet18");
  for (FileTensor& t : file) {
    if (t.name.starts_with("layer")) t.name = "stage" + t.name.substr(5);
  }
  const std::vector<TensorInfo> model = tensors_of(preset("resnet18"), images(224));
  InitialWeights spec = weights();
  spec.exclude = {"fc.*"};
  const std::string refused = refusal_of(spec, file, model);
  expect_text(refused,
              "recipe.initial_weights: only 7 of the 102 tensors of hub.safetensors have "
              "a counterpart in the model, and 95 tensors of the model (99.9 % of its "
              "numbers) would be drawn at random");
  expect_text(refused,
              "The file also has stage1.0.bn1.bias, stage1.0.bn1.running_mean and 93 more");
  expect_text(refused,
              "It lacks the model's layer1/0/conv1.weight, layer1/0/bn1.weight and 93 more");
  expect_text(refused, "rename: {\"theirs.\": \"ours/\"}");
  expect_text(refused, "partial: true");
  EXPECT_LT(refused.size(), 500u) << "the server cuts longer messages";
  spec.partial = true;
  const auto match = match_weights(spec, file, model);
  ASSERT_TRUE(match.ok()) << match.error().message;
  EXPECT_EQ(match->report.taken.size(), 5u);
  EXPECT_EQ(match->report.missing.size(), 95u);

  // All numbers of a small model, but a small part of the file.
  const std::vector<TensorInfo> small = {model.begin(), model.begin() + 5};
  expect_text(refusal_of(weights(), file, small), "only 5 of the 102 tensors");
  InitialWeights part = weights();
  part.include = {"*"};  // says that a part of the file is enough
  EXPECT_TRUE(match_weights(part, file, small).ok());
}

TEST(WeightNames, AnotherNetworksFileIsRefusedWithItsName) {
  const std::vector<TensorInfo> vit = tensors_of(preset("vit_tiny"), images(32));
  const std::string resnet = refusal_of(weights(), file_of("torchvision resnet18"), vit);
  expect_text(resnet, "no tensor of hub.safetensors has a name and shape of this model");
  expect_text(resnet,
              "the names of torchvision's or timm's ResNet, which is the network of the "
              "presets resnet18, resnet34, resnet50, resnet101 and resnet152");
  const std::map<std::string, std::string> without_preset = {
      {"transformers bert", "BERT"},
      {"transformers roberta", "BERT"},
      {"transformers distilbert", "DistilBERT"},
      {"transformers convnext", "ConvNeXt"},
      {"torchvision convnext", "ConvNeXt"},
      {"timm convnext", "ConvNeXt"},
      {"torchvision efficientnet", "EfficientNet or MobileNetV3"},
      {"timm efficientnet", "EfficientNet or MobileNetV3"},
      {"transformers efficientnet", "EfficientNet or MobileNetV3"},
      {"torchvision mobilenet_v3", "EfficientNet or MobileNetV3"},
      {"timm mobilenet_v3", "EfficientNet or MobileNetV3"},
      {"torchvision mobilenet_v2", "MobileNet"},
      {"timm mobilenet_v2", "MobileNet"},
      {"transformers mobilenet_v1", "MobileNet"},
      {"transformers mobilenet_v2", "MobileNet"}};
  for (const auto& [file, title] : without_preset) {
    const std::string refused = refusal_of(weights(), file_of(file), vit);
    expect_text(refused, "The file has the names of " + title);
    expect_text(refused, "for which there is no preset");
    expect_text(refused, "model.onnx");
  }
}

// Every family's config.json gives a network whose parameters are exactly the tensors that
// transformers writes for it.
TEST(WeightNames, EveryFamilysFileFillsTheNetworkOfItsConfig) {
  std::ifstream golden(testing::source_path("tests/golden/families.json"));
  const nlohmann::json families = nlohmann::json::parse(golden);
  for (const auto& [name, expected] : families.items()) {
    const auto family = read_model_config(expected.at("config").dump());
    ASSERT_TRUE(family.ok()) << name << ": " << family.error().message;
    std::vector<FileTensor> file;
    for (const auto& [tensor, shape] : expected.at("tensors").items()) {
      file.push_back({tensor, "BF16", Shape(shape.get<std::vector<int64_t>>())});
    }
    const int64_t vocabulary = family->vocabulary;
    const ModelInterface documents{{16}, vocabulary, TargetForm::kNextToken, vocabulary};
    const auto match = match_weights(weights(), file, tensors_of(family->network, documents));
    ASSERT_TRUE(match.ok()) << name << ": " << match.error().message;
    EXPECT_EQ(match->taken.size(), file.size()) << name;
    EXPECT_EQ(match->report.missing, std::vector<std::string>()) << name;
    EXPECT_EQ(match->report.mismatched, std::vector<std::string>()) << name;
    EXPECT_EQ(match->report.unused, std::vector<std::string>()) << name;
  }
}

TEST(WeightNames, AHeadOfOtherClassesIsNamedWithWhatToWrite) {
  const ModelInterface ten{{3, 224, 224}, 0, TargetForm::kClass, 10};
  expect_text(
      refusal_of(weights(), file_of("transformers resnet18"), tensors_of(preset("resnet18"), ten)),
      "hub.safetensors has fc.weight [7, 512] where [10, 512] is needed, fc.bias [7] where "
      "[10] is needed; exclude: ['fc.*'] or skip_mismatched: true draws them at random");
}

// Imported layers have "_" where the module's names have ".".
TEST(WeightNames, ImportedLayersTakeTheModulesOwnFile) {
  const ModelSpec model =
      layers({layer("Conv", {{"out_channels", int64_t{4}}, {"kernel_shape", int64_t{3}}},
                    "features_0_conv"),
              layer("GlobalAveragePool"), layer("Gemm", {}, "head_fc")});
  const std::vector<FileTensor> file = {{"features.0.conv.weight", "F32", Shape{4, 3, 3, 3}},
                                        {"features.0.conv.bias", "F32", Shape{4}},
                                        {"Head.fc.weight", "F32", Shape{7, 4}},
                                        {"Head.fc.bias", "F32", Shape{7}}};
  const std::vector<TensorInfo> tensors = tensors_of(model, images(8));
  const auto match = match_weights(weights(), file, tensors);
  ASSERT_TRUE(match.ok()) << match.error().message;
  EXPECT_EQ(match->report.taken.size(), 4u);
  EXPECT_EQ(match->report.naming, "a PyTorch module");
  // A name with two candidates is not guessed.
  std::vector<FileTensor> twice = file;
  twice.push_back({"head_fc_weight", "F32", Shape{7, 4}});
  EXPECT_EQ(match_weights(weights(), twice, tensors)->report.missing,
            std::vector<std::string>{"head_fc.weight"});
}

}  // namespace
}  // namespace trainyard
