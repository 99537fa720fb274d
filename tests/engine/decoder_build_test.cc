// Tests of the preset decoder and of rotary_embedding: parameter counts of published models, what
// layers share, and refusals.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/graph/op.h"
#include "src/models/loss.h"
#include "tests/engine/model_support.h"

namespace trainyard {
namespace {

using testing::build;
using testing::layer;
using testing::layers;
using testing::preset;
using testing::tensor;

ModelInterface tokens_interface(int64_t vocabulary, int64_t length = 16) {
  return {{length}, vocabulary, TargetForm::kNextToken, vocabulary};
}

struct PublishedModel {
  const char* name;
  int64_t layers, width, heads, kv_heads, hidden, vocabulary;
  Attributes others;
  int64_t parameters;
};

Attributes parameters_of(const PublishedModel& m) {
  Attributes a = m.others;
  a.set("n_layer", m.layers);
  a.set("n_embd", m.width);
  a.set("n_head", m.heads);
  a.set("n_kv_head", m.kv_heads);
  a.set("hidden", m.hidden);
  return a;
}

// The counts are those that the models' publishers and transformers give.
TEST(DecoderPreset, HasTheParameterCountsOfPublishedModels) {
  const Attributes tied{{"tied_head", int64_t{1}}};
  const std::vector<PublishedModel> models = {
      {"SmolLM2 135M", 30, 576, 9, 3, 1536, 49152, tied, 134515008},
      {"Llama 3.2 1B", 16, 2048, 32, 8, 8192, 128256, tied, 1235814400},
      {"Llama 3.1 8B", 32, 4096, 32, 8, 14336, 128256, {}, 8030261248},
      {"Mistral 7B", 32, 4096, 32, 8, 14336, 32000, {{"window", int64_t{4096}}}, 7241732096},
      {"Qwen2.5 0.5B",
       24,
       896,
       14,
       2,
       4864,
       151936,
       {{"tied_head", int64_t{1}}, {"qkv_bias", int64_t{1}}},
       494032768},
      {"Qwen3 0.6B",
       28,
       1024,
       16,
       8,
       3072,
       151936,
       {{"tied_head", int64_t{1}}, {"head_dim", int64_t{128}}, {"qk_norm", std::string("head")}},
       596049920},
      {"OLMo 2 1B",
       16,
       2048,
       16,
       16,
       8192,
       100352,
       {{"qk_norm", std::string("all")}, {"norm_place", std::string("after")}},
       1484916736}};
  for (const PublishedModel& m : models) {
    const Model model = build(preset("decoder", parameters_of(m)), tokens_interface(m.vocabulary));
    EXPECT_EQ(testing::parameters(model), m.parameters) << m.name;
  }
}

ModelSpec small_decoder(Attributes more = {}) {
  more.set("n_layer", int64_t{2});
  more.set("n_embd", int64_t{24});
  more.set("n_head", int64_t{4});
  return preset("decoder", std::move(more));
}

int64_t nodes_of(const Model& model, std::string_view op) {
  return std::ranges::count_if(model.graph.nodes(),
                               [&](const Node& n) { return n.op->type() == op; });
}

TEST(DecoderPreset, AllLayersReadOneTableOfAngles) {
  const Model model = build(small_decoder(), tokens_interface(31));
  model.graph.verify();
  EXPECT_EQ(nodes_of(model, "RotaryTables"), 1);
  EXPECT_EQ(nodes_of(model, "RotaryEmbedding"), 4);
  EXPECT_EQ(model.positions, kNoTensor);
  EXPECT_EQ(tensor(model, "h0_q_rope/tables.cos").type.shape, (Shape{16, 3}));
}

TEST(DecoderPreset, DocumentsInARowHaveTheirOwnPositions) {
  ModelInterface interface = tokens_interface(31);
  interface.documents = true;
  const Model model = build(small_decoder(), interface);
  model.graph.verify();
  ASSERT_NE(model.positions, kNoTensor);
  EXPECT_EQ(model.graph.tensor(model.positions).type, (TensorType{{2, 16}, DType::kI32}));
  EXPECT_EQ(tensor(model, "h0_q_rope/tables.cos").type.shape, (Shape{2, 16, 3}));
  for (const Node& node : model.graph.nodes()) {
    if (node.op->type() == "Attention") {
      EXPECT_EQ(node.inputs.at(4), model.positions);
    }
  }
  // GPT-2's learned positions are those of the documents too.
  const Model gpt = build(preset("gpt2", {{"size", std::string("nano")}}), interface);
  EXPECT_EQ(nodes_of(gpt, "PositionEmbedding"), 0);
  EXPECT_NE(gpt.positions, kNoTensor);
}

TEST(DecoderPreset, MayHaveMoreTokensThanTheDataset) {
  const ModelSpec spec = small_decoder({{"vocab_size", int64_t{40}}, {"tied_head", int64_t{1}}});
  const Model model = build(spec, tokens_interface(31));
  EXPECT_EQ(tensor(model, "embed.weight").type.shape, (Shape{40, 24}));
  EXPECT_EQ(model.graph.tensor(model.output).type.shape, (Shape{2, 16, 40}));
  EXPECT_EQ(find_objective(spec, tokens_interface(31)).value().interface.outputs, 40);
}

TEST(DecoderPreset, WindowsAreOfTheLayersThatAreNamed) {
  const Model model =
      build(small_decoder({{"window", int64_t{5}}, {"window_layers", std::vector<int64_t>{1}}}),
            tokens_interface(31));
  std::vector<int64_t> windows;
  for (const Node& node : model.graph.nodes()) {
    if (node.op->type() == "Attention") windows.push_back(node.attributes.get_int("window", 0));
  }
  EXPECT_EQ(windows, (std::vector<int64_t>{0, 5}));
}

// The classes have a layer of their own, which reads the last token that is not the padding.
TEST(DecoderPreset, ClassifiesRowsOfTextByTheirLastToken) {
  ModelInterface interface { {16}, 31, TargetForm::kClass, 3 };
  interface.padding = 4;
  const Model model = build(small_decoder({{"vocab_size", int64_t{40}}}), interface);
  EXPECT_EQ(model.graph.tensor(model.output).type.shape, (Shape{2, 3}));
  EXPECT_EQ(tensor(model, "score.weight").type.shape[0], 3);
  EXPECT_FALSE(model.graph.find_tensor("score.bias"));
  EXPECT_FALSE(model.graph.find_tensor("head.weight"));
  EXPECT_EQ(tensor(model, "embed.weight").type.shape[0], 40);
  EXPECT_EQ(model.trained_layer, "score");
  const auto& nodes = model.graph.nodes();
  const auto pool = std::ranges::find(nodes, "pool", &Node::name);
  ASSERT_NE(pool, nodes.end());
  EXPECT_EQ(pool->attributes.get_int("padding_id", 0), 4);
  EXPECT_EQ(pool->inputs[1], model.input);
}

void expect_decoder_refusal(Attributes parameters, const std::string& field,
                            const std::string& text,
                            const ModelInterface& interface = tokens_interface(31)) {
  const auto model =
      build_model(small_decoder(std::move(parameters)), interface, {.batch_size = 2});
  ASSERT_FALSE(model.ok()) << text;
  ASSERT_FALSE(model.error().violations.empty()) << model.error().message;
  EXPECT_EQ(model.error().violations[0].field, "model.decoder" + field) << model.error().message;
  EXPECT_NE(model.error().message.find(text), std::string::npos) << model.error().message;
}

TEST(DecoderPreset, RefusesWhatDoesNotFit) {
  const auto text = [](const char* value) { return Attribute(std::string(value)); };
  const int64_t yes = 1;
  expect_decoder_refusal({{"n_kv_head", int64_t{3}}}, ".n_kv_head", "expected a divisor of it");
  expect_decoder_refusal({{"rope_dim", int64_t{8}}}, ".rope_dim", "at most head_dim 6");
  expect_decoder_refusal({{"head_dim", int64_t{5}}}, ".head_dim", "an even number");
  expect_decoder_refusal({{"vocab_size", int64_t{30}}}, ".vocab_size", "expected 31 or more");
  expect_decoder_refusal({{"no_rope_layers", std::vector<int64_t>{2}}}, ".no_rope_layers",
                         "expected 0..1");
  expect_decoder_refusal({{"window_layers", std::vector<int64_t>{0}}}, ".window_layers",
                         "without window");
  expect_decoder_refusal({{"positions_max", int64_t{8}}}, ".positions_max", "context_length 16");
  expect_decoder_refusal({{"norm", text("batch")}}, ".norm", "expected rms or layer");
  expect_decoder_refusal({{"rope_factor", 2.0}}, ".rope_factor", "has no effect");
  expect_decoder_refusal({{"rope_scaling", text("llama3")}, {"rope_factor", 2.0}},
                         ".rope_low_freq_factor", "is required");
  expect_decoder_refusal({{"tied_head", yes}}, "", "next token",
                         {{16}, 31, TargetForm::kNumeric, 1});
  expect_decoder_refusal({{"positions_max", int64_t{8}}}, ".positions_max", "rows have 16 tokens",
                         {{16}, 31, TargetForm::kClass, 3});
}

TEST(RotaryLayer, RefusesWhatDoesNotFit) {
  const auto refusal = [](Attributes attributes) {
    const auto model = build_model(
        layers({layer("Embedding", {{"embedding_dim", int64_t{12}}}, "e"),
                layer("RotaryEmbedding", std::move(attributes), "r"), layer("Linear", {}, "head")}),
        tokens_interface(31), {.batch_size = 2});
    return model.ok() ? std::string("accepted") : model.error().message;
  };
  EXPECT_EQ(refusal({{"num_heads", int64_t{2}}}), "accepted");
  EXPECT_NE(refusal({{"num_heads", int64_t{5}}}).find("does not divide the width 12"),
            std::string::npos);
  EXPECT_NE(refusal({{"num_heads", int64_t{4}}}).find("an even number up to the width of a head"),
            std::string::npos);
  EXPECT_NE(refusal({{"num_heads", int64_t{2}}, {"scaling", std::string("yarn")}}).find("factor"),
            std::string::npos);
  EXPECT_NE(refusal({{"num_heads", int64_t{2}}, {"beta_fast", 3.0}}).find("has no effect"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard
