// Tests of transformer presets and their layers: parameter counts known from publications, shared
// weights, and refusals that name the layer.
#include <gtest/gtest.h>

#include <cmath>

#include "src/graph/op.h"
#include "src/models/model_spec.h"
#include "tests/engine/model_support.h"

namespace trainyard {
namespace {

using testing::build;
using testing::layer;
using testing::layers;
using testing::preset;
using testing::tensor;

const ModelInterface kImageNet{{3, 224, 224}, 0, TargetForm::kClass, 1000};
const ModelInterface kCharacters{{256}, 65, TargetForm::kNextToken, 65};
const ModelInterface kGptText{{1024}, 50257, TargetForm::kNextToken, 50257};
const ModelInterface kReviews{{16}, 100, TargetForm::kClass, 3};

ModelSpec gpt2(const std::string& size) { return preset("gpt2", {{"size", size}}); }

int64_t parameters(const ModelSpec& spec, const ModelInterface& interface) {
  return testing::parameters(build(spec, interface));
}

void expect_refusal(const ModelSpec& spec, const ModelInterface& interface,
                    const std::string& field, const std::string& text) {
  const auto model = build_model(spec, interface, {.batch_size = 2});
  ASSERT_FALSE(model.ok()) << text;
  ASSERT_FALSE(model.error().violations.empty());
  EXPECT_EQ(model.error().violations[0].field, field) << model.error().message;
  EXPECT_NE(model.error().message.find(text), std::string::npos) << model.error().message;
}

// GPT-2 as released by Radford et al. (2019); the counts are those of PyTorch implementations.
TEST(TransformerPresets, Gpt2HasTheKnownParameterCounts) {
  EXPECT_EQ(parameters(preset("gpt2"), kGptText), 124439808);
  EXPECT_EQ(parameters(gpt2("medium"), kGptText), 354823168);
  EXPECT_EQ(parameters(gpt2("large"), kGptText), 774030080);
  EXPECT_EQ(parameters(gpt2("xl"), kGptText), 1557611200);
  EXPECT_EQ(parameters(gpt2("mini"), kCharacters), 10770816);
}

TEST(TransformerPresets, VitHasTheKnownParameterCounts) {
  EXPECT_EQ(parameters(preset("vit_base"), kImageNet), 86567656);
  EXPECT_EQ(parameters(preset("vit_small"), kImageNet), 22050664);
  EXPECT_EQ(parameters(preset("vit_tiny"), kImageNet), 5717416);
  EXPECT_EQ(parameters(preset("vit_tiny", {{"pool", std::string("mean")}}), kImageNet),
            5717416 - 2 * 192);
}

TEST(TransformerPresets, Gpt2IsInitializedAsInItsPaper) {
  const Model model = build(preset("gpt2"), kGptText);
  EXPECT_EQ(tensor(model, "wte.weight").initializer.kind, Initializer::Kind::kNormal);
  EXPECT_EQ(tensor(model, "wte.weight").initializer.b, 0.02);
  EXPECT_EQ(tensor(model, "h0_mlp_fc.weight").initializer.b, 0.02);
  EXPECT_DOUBLE_EQ(tensor(model, "h11_attn_proj.weight").initializer.b, 0.02 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(tensor(model, "h11_mlp_proj.weight").initializer.b, 0.02 / std::sqrt(24.0));
  EXPECT_EQ(tensor(model, "h0_mlp_fc.bias").initializer.kind, Initializer::Kind::kConstant);
  EXPECT_EQ(tensor(model, "h0_mlp_fc.bias").initializer.a, 0);
  EXPECT_EQ(tensor(model, "h0_ln_1.weight").initializer.a, 1);
  EXPECT_EQ(model.graph.find_tensor("head.weight"), std::nullopt);
  EXPECT_EQ(model.graph.tensor(model.output).type.shape, (Shape{2, 1024, 50257}));
}

TEST(TransformerPresets, BuildWithDropoutAndForEvaluation) {
  for (const auto& [spec, interface] :
       {std::pair(preset("gpt2", {{"size", std::string("nano")}, {"dropout", 0.1}}), kCharacters),
        std::pair(preset("vit_tiny", {{"dropout", 0.1}}), kImageNet),
        std::pair(preset("transformer_classifier", {{"dropout", 0.1}}), kReviews)}) {
    const Model training = build(spec, interface);
    training.graph.verify();
    EXPECT_NE(training.graph.dump().find("Dropout"), std::string::npos);
    const Model evaluation = build(spec, interface, /*training=*/false);
    evaluation.graph.verify();
    EXPECT_EQ(evaluation.graph.dump().find("Dropout"), std::string::npos);
    EXPECT_EQ(evaluation.graph.find_tensor("h0_attn.log_sum_exp"), std::nullopt);
    const auto expanded = expand_preset(spec, interface).value();
    EXPECT_EQ(build(layers(expanded), interface).graph.dump(), training.graph.dump());
  }
}

TEST(TransformerPresets, RefuseUnsuitableData) {
  expect_refusal(preset("gpt2"), kImageNet, "model.gpt2", "[3, 224, 224]");
  expect_refusal(preset("gpt2", {{"n_head", int64_t{7}}}), kCharacters, "model.gpt2.n_head",
                 "7 heads do not divide");
  expect_refusal(preset("gpt2", {{"size", std::string("huge")}}), kCharacters, "model.gpt2.size",
                 "expected nano or mini or small");
  expect_refusal(preset("vit_base"), kCharacters, "model.vit_base", "needs images");
  expect_refusal(preset("vit_tiny", {{"patch_size", int64_t{15}}}), kImageNet,
                 "model.vit_tiny.patch_size", "expected a divisor of 224 and 224");
  expect_refusal(preset("transformer_classifier"), kCharacters, "model.transformer_classifier",
                 "that predict the next one");
  expect_refusal(preset("transformer_classifier", {{"n_head", int64_t{3}}}), kReviews,
                 "model.transformer_classifier.n_head", "expected a divisor");
}

TEST(SequenceLayers, StartAsInPyTorch) {
  const Model model = build(
      layers({layer("Embedding", {{"embedding_dim", int64_t{6}}}, "e"),
              layer("Linear", {{"units", int64_t{5}}}, "l"), layer("LayerNormalization", {}, "n"),
              layer("RMSNormalization", {}, "r"), layer("SequencePool"),
              layer("Linear", {{"initializer", std::string("normal")}, {"initializer_std", 0.5}},
                    "head")}),
      kReviews);
  EXPECT_EQ(tensor(model, "e.weight").type.shape, (Shape{100, 6}));
  EXPECT_EQ(tensor(model, "e.weight").initializer.kind, Initializer::Kind::kNormal);
  EXPECT_EQ(tensor(model, "e.weight").initializer.b, 1);
  EXPECT_EQ(tensor(model, "l.weight").type.shape, (Shape{5, 6}));
  EXPECT_DOUBLE_EQ(tensor(model, "l.weight").initializer.b, 1 / std::sqrt(6.0));
  EXPECT_DOUBLE_EQ(tensor(model, "l.bias").initializer.a, -1 / std::sqrt(6.0));
  EXPECT_EQ(tensor(model, "l").type.shape, (Shape{2, 16, 5}));
  EXPECT_EQ(tensor(model, "n.weight").initializer.a, 1);
  EXPECT_EQ(tensor(model, "n.bias").initializer.a, 0);
  EXPECT_EQ(tensor(model, "r.weight").initializer.a, 1);
  EXPECT_EQ(tensor(model, "head.weight").initializer.b, 0.5);
  EXPECT_EQ(tensor(model, "head.bias").initializer.a, 0);
}

TEST(SequenceLayers, NormalizeOverSeveralDimensions) {
  const Model model =
      build(layers({layer("LayerNormalization", {{"axis", int64_t{1}}}, "n"), layer("Gemm")}),
            {{3, 4, 5}, 0, TargetForm::kClass, 2});
  EXPECT_EQ(tensor(model, "n.weight").type.shape, (Shape{3, 4, 5}));
  EXPECT_EQ(tensor(model, "n.mean").type.shape, (Shape{2, 1, 1, 1}));
}

ModelSpec tied(Attributes head, const std::string& source = "e") {
  head.set("tied_to", source);
  return layers({layer("Embedding", {{"embedding_dim", int64_t{6}}}, "e"),
                 layer("LayerNormalization", {}, "n"), layer("Linear", std::move(head), "head")});
}

TEST(SequenceLayers, ShareAWeightByName) {
  const ModelInterface text{{16}, 100, TargetForm::kNextToken, 100};
  EXPECT_EQ(parameters(tied({}), text), 600 + 12 + 100);
  EXPECT_EQ(parameters(tied({{"bias", int64_t{0}}}), text), 600 + 12);
  expect_refusal(tied({}, "x"), text, "model.layers[2].linear.tied_to",
                 "is not a layer with a weight");
  expect_refusal(tied({}, "head"), text, "model.layers[2].linear.tied_to",
                 "is not a layer with a weight");
  expect_refusal(tied({}, "n"), text, "model.layers[2].linear.tied_to", "expected [units, 6]");
  expect_refusal(tied({{"units", int64_t{100}}}), text, "model.layers[2].linear.units",
                 "follows from tied_to");
}

TEST(SequenceLayers, MultiplyAndNormalizeScores) {
  const Model model = build(layers({layer("Embedding", {{"embedding_dim", int64_t{6}}}, "e"),
                                    layer("Linear", {{"units", int64_t{16}}}, "scores"),
                                    layer("Softmax", {{"axis", int64_t{1}}}, "p"),
                                    layer("MatMul", {}, "mixed", {"p", "e"}),
                                    layer("Gemm", {{"units", int64_t{3}}}), layer("LogSoftmax")}),
                            {{16}, 100, TargetForm::kNumeric, 3});
  EXPECT_EQ(tensor(model, "mixed").type.shape, (Shape{2, 16, 6}));
  model.graph.verify();
}

TEST(SequenceLayers, RefusalsNameTheLayer) {
  const LayerSpec e = layer("Embedding", {{"embedding_dim", int64_t{6}}}, "e");
  const LayerSpec pool = layer("SequencePool"), head = layer("Linear");
  expect_refusal(layers({layer("Embedding", {{"embedding_dim", int64_t{6}}}), head}), kImageNet,
                 "model.layers[0]", "needs tokens");
  expect_refusal(
      layers({layer("Embedding", {{"embedding_dim", int64_t{6}}, {"num_embeddings", int64_t{99}}}),
              pool, head}),
      kReviews, "model.layers[0].embedding.num_embeddings", "expected 100 or more");
  expect_refusal(layers({e, layer("Attention", {{"q_num_heads", int64_t{4}}}), pool, head}),
                 kReviews, "model.layers[1].attention.q_num_heads", "not a multiple");
  expect_refusal(
      layers({e, layer("Attention", {{"q_num_heads", int64_t{2}}}, "", {"e", "e"}), pool, head}),
      kReviews, "model.layers[1]", "the last one is the tokens of the sequence");
  expect_refusal(
      layers({e,
              layer("Attention", {{"q_num_heads", int64_t{2}}, {"is_causal", int64_t{1}}}, "",
                    {"e", "input"}),
              pool, head}),
      kReviews, "model.layers[1].attention.is_causal", "expected only one of the two");
  expect_refusal(layers({e, layer("LayerNormalization", {{"axis", int64_t{0}}}), pool, head}),
                 kReviews, "model.layers[1].layer_normalization.axis", "expected 1..2 or -1..-2");
  expect_refusal(layers({e, layer("SequencePool", {{"mode", std::string("lasst")}}), head}),
                 kReviews, "model.layers[1].sequence_pool.mode",
                 "expected mean or max or first or last");
  expect_refusal(
      layers(
          {e, layer("SequencePool", {{"mode", std::string("first")}}, "", {"e", "input"}), head}),
      kReviews, "model.layers[1]", "expected one input");
  expect_refusal(layers({e, layer("Softmax", {{"axis", int64_t{3}}}), pool, head}), kReviews,
                 "model.layers[1].softmax.axis", "expected 1..2 or -1..-2");
  expect_refusal(layers({e, layer("Linear", {{"units", int64_t{5}}}, "l"),
                         layer("MatMul", {}, "", {"e", "l"}), pool, head}),
                 kReviews, "model.layers[2]", "has 16 rows, expected 6");
  expect_refusal(layers({layer("ImageToSequence"), head}), kReviews, "model.layers[0]",
                 "needs images");
  expect_refusal(layers({layer("PositionEmbedding"), head}), kImageNet, "model.layers[0]",
                 "needs a sequence");
  expect_refusal(layers({e, layer("Linear"), pool, head}), kReviews, "model.layers[1].linear.units",
                 "is required");
}

}  // namespace
}  // namespace trainyard
