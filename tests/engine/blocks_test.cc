// A block is expanded to the layers that the user would have written, under names that say where
// each layer is. A mistake in a block is reported once, by the block's own name.
#include <gtest/gtest.h>

#include <ctime>

#include "src/models/blocks.h"
#include "src/models/layer.h"
#include "src/models/model_json.h"
#include "tests/engine/model_support.h"

namespace trainyard {
namespace {

using testing::layer;

const ModelInterface kRows{{6}, 0, TargetForm::kClass, 3};

LayerSpec use(std::string block, Attributes with = {}, std::string name = "",
              std::vector<std::string> inputs = {}, std::optional<int64_t> repeat = {}) {
  LayerSpec spec = layer(kUseOp, std::move(with), std::move(name), std::move(inputs));
  spec.block = std::move(block);
  spec.repeat = repeat;
  return spec;
}

BlockSpec block(std::string name, std::vector<LayerSpec> layers,
                std::vector<std::string> parameters = {}, Attributes defaults = {},
                std::vector<std::string> inputs = {}) {
  return {std::move(name), std::move(inputs), std::move(parameters), std::move(defaults),
          std::move(layers)};
}

ModelSpec model(std::vector<BlockSpec> blocks, std::vector<LayerSpec> layers) {
  ModelSpec spec;
  spec.blocks = std::move(blocks);
  spec.layers = std::move(layers);
  return spec;
}

std::vector<std::string> names(const ModelSpec& spec) {
  std::vector<std::string> out;
  const std::vector<LayerSpec> layers = expand_blocks(spec).value();
  for (const LayerSpec& l : layers) out.push_back(l.name);
  return out;
}

Error rows_refusal(const ModelSpec& spec) { return testing::refusal(spec, kRows); }

// "dense": a Gemm of `units` and a Relu.
BlockSpec dense() {
  return block("dense", {layer("Gemm", {}, "", {}, {{"units", "units"}}), layer("Relu")},
               {"units"});
}

TEST(Blocks, AreNamedByTheirPosition) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(model({dense()},
                        {use("dense", {{"units", int64_t{4}}}),
                         use("dense", {{"units", int64_t{5}}}, "wide"),
                         use("dense", {{"units", int64_t{6}}}, "deep", {}, 2), layer("Gemm")})),
            (Names{"dense1/gemm1", "dense1/relu1", "wide/gemm1", "wide/relu1", "deep/0/gemm1",
                   "deep/0/relu1", "deep/1/gemm1", "deep/1/relu1", "gemm1"}));
}

TEST(Blocks, GiveTheGraphOfTheExpandedLayers) {
  const BlockSpec residual =
      block("residual",
            {layer("Gemm", {}, "branch", {}, {{"units", "units"}, {"bias", "bias"}}), layer("Tanh"),
             layer("Add", {}, "sum", {"tanh1", "input"})},
            {"units", "bias"}, {{"bias", int64_t{0}}});
  const ModelSpec spec =
      model({residual}, {layer("Gemm", {{"units", int64_t{6}}}, "stem"),
                         use("residual", {{"units", int64_t{6}}}, "body", {"stem"}, 2),
                         layer("Gemm", {}, "head")});
  const Attributes plain{{"units", int64_t{6}}, {"bias", int64_t{0}}};
  const ModelSpec by_hand =
      model({}, {layer("Gemm", {{"units", int64_t{6}}}, "stem"),
                 layer("Gemm", plain, "body/0/branch", {"stem"}), layer("Tanh", {}, "body/0/tanh1"),
                 layer("Add", {}, "body/0/sum", {"body/0/tanh1", "stem"}),
                 layer("Gemm", plain, "body/1/branch"), layer("Tanh", {}, "body/1/tanh1"),
                 layer("Add", {}, "body/1/sum", {"body/1/tanh1", "body/0/sum"}),
                 layer("Gemm", {}, "head")});
  EXPECT_EQ(build_model(spec, kRows, {.batch_size = 4})->graph.dump(),
            build_model(by_hand, kRows, {.batch_size = 4})->graph.dump());
}

TEST(Blocks, HaveSeveralInputsAndMayBeNested) {
  const BlockSpec join = block("join",
                               {layer("Gemm", {{"units", int64_t{5}}}, "left", {"a"}),
                                layer("Gemm", {{"units", int64_t{5}}}, "right", {"b"}),
                                layer("Add", {}, "", {"left", "right"})},
                               {}, {}, {"a", "b"});
  LayerSpec inner = use("dense", {}, "first", {"x"});
  inner.bind = {{"units", "width"}};
  const BlockSpec outer =
      block("outer", {inner, use("join", {}, "", {"first", "x"})}, {"width"}, {}, {"x"});
  const ModelSpec spec =
      model({dense(), join, outer}, {use("outer", {{"width", int64_t{7}}}, "o"), layer("Gemm")});
  EXPECT_EQ(names(spec), (std::vector<std::string>{"o/first/gemm1", "o/first/relu1", "o/join1/left",
                                                   "o/join1/right", "o/join1/add1", "gemm1"}));
  const Model built = build_model(spec, kRows, {.batch_size = 4}).value();
  EXPECT_EQ(built.graph.tensor(*built.graph.find_tensor("o/join1/left.weight")).type.shape,
            (Shape{5, 7}));
  EXPECT_EQ(built.graph.tensor(*built.graph.find_tensor("o/join1/right.weight")).type.shape,
            (Shape{5, 6}));
}

TEST(Blocks, SurviveTheModelFile) {
  const ModelSpec spec =
      model({dense(),
             block("twice", {use("dense", {{"units", int64_t{4}}}, "", {"x"}, 2)}, {}, {}, {"x"})},
            {use("twice"), layer("Gemm")});
  const std::string text = model_to_json(spec);
  const ModelSpec read = model_from_json(text).value();
  EXPECT_EQ(model_to_json(read), text);
  EXPECT_EQ(build_model(spec, kRows, {})->graph.dump(), build_model(read, kRows, {})->graph.dump());
  EXPECT_EQ(model_from_json(R"({"blocks":[{"layers":3}]})").error().reason, "MODEL_FILE_INVALID");
}

TEST(BlockRefusals, NameTheBlockAndTheLayer) {
  const BlockSpec wrong =
      block("wrong", {layer("Gemm", {{"unts", int64_t{3}}}, "a"), layer("Relu", {}, "b")});
  const Error unknown =
      rows_refusal(model({wrong}, {use("wrong", {}, "w", {}, 50), layer("Gemm")}));
  EXPECT_EQ(unknown.message,
            "model.blocks[0].layers[0] 'w/0/a' of block 'wrong': unts: is not known here, did you "
            "mean 'units'?");
  ASSERT_EQ(unknown.violations.size(), 1u);  // reported once, not fifty times
  EXPECT_EQ(unknown.violations[0].field, "model.blocks[0].layers[0].gemm.unts");

  const BlockSpec image =
      block("image", {layer("Conv", {{"out_channels", int64_t{3}}, {"kernel_shape", int64_t{3}}})});
  EXPECT_EQ(rows_refusal(model({image}, {use("image"), layer("Gemm")})).message,
            "model.blocks[0].layers[0] 'image1/conv1' of block 'image': needs images "
            "[N, C, H, W], but its input is [4, 6]");

  const BlockSpec wiring =
      block("wiring", {layer("Relu", {}, "a"), layer("Relu", {}, "b", {"aa"})});
  EXPECT_NE(rows_refusal(model({wiring}, {use("wiring", {}, "w"), layer("Gemm")}))
                .message.find("'w/b' of block 'wiring': inputs: 'w/aa' is not a layer"),
            std::string::npos);
  const BlockSpec unused =
      block("unused", {layer("Relu", {}, "a"), layer("Relu", {}, "b", {"input"})});
  const Error nothing =
      rows_refusal(model({unused}, {use("unused", {}, "w", {}, 9), layer("Gemm")}));
  EXPECT_EQ(nothing.reason, "LAYER_UNUSED");
  EXPECT_EQ(nothing.violations.size(), 1u);
}

TEST(BlockRefusals, CoverDefinitionsAndUses) {
  const Attributes four{{"units", int64_t{4}}};
  const auto message = [](const ModelSpec& spec) { return rows_refusal(spec).message; };
  EXPECT_NE(message(model({dense()}, {use("dnse", four), layer("Gemm")})).find("'dense'"),
            std::string::npos);
  EXPECT_EQ(message(model({dense()}, {use("dense"), layer("Gemm")})),
            "model.layers[0].use.with.units: is required: block 'dense' has no default for it");
  EXPECT_EQ(message(model({dense()}, {use("dense", {{"units", int64_t{4}}, {"unit", int64_t{4}}}),
                                      layer("Gemm")})),
            "model.layers[0].use.with.unit: 'unit' is not a parameter of block 'dense', did you "
            "mean 'units'?");
  EXPECT_EQ(message(model({dense()}, {use("dense", four, "", {"input", "input"}), layer("Gemm")})),
            "model.layers[0].inputs: names 2, but block 'dense' takes 1");
  EXPECT_EQ(message(model({dense()}, {use("dense", four, "", {}, 0), layer("Gemm")})),
            "model.layers[0].use.repeat: 0 is out of range, expected 1..10000");
  EXPECT_EQ(message(model({dense()}, {layer("Gemm")})),
            "model.blocks[0] 'dense': nothing uses it; remove it or use it in a layer");
  EXPECT_EQ(rows_refusal(model({block("b", {layer("Relu")}, {"p"}, {{"p", int64_t{1}}})},
                               {use("b"), layer("Gemm")}))
                .reason,
            "BLOCK_PARAMETER_UNUSED");
  EXPECT_EQ(rows_refusal(model({block("b", {layer("Relu")}, {}, {}, {"x", "y"})},
                               {use("b", {}, "", {"input", "input"}), layer("Gemm")}))
                .reason,
            "BLOCK_INPUT_UNUSED");
  EXPECT_EQ(rows_refusal(model({block("B", {layer("Relu")})}, {use("B"), layer("Gemm")})).reason,
            "NAME_MALFORMED");
  EXPECT_EQ(
      rows_refusal(model({block("b", {layer("Relu", {}, "input")})}, {use("b"), layer("Gemm")}))
          .reason,
      "FIELD_DUPLICATE");
  EXPECT_EQ(rows_refusal(model({block("b", {})}, {use("b"), layer("Gemm")})).reason,
            "FIELD_REQUIRED");
  EXPECT_EQ(rows_refusal(model({}, {layer("Gemm", {}, "", {}, {{"units", "u"}})})).reason,
            "FIELD_UNUSED");
  EXPECT_EQ(rows_refusal(model({block("b", {layer("Gemm", four, "", {}, {{"units", "u"}})}, {"u"})},
                               {use("b", {{"u", int64_t{3}}}), layer("Gemm")}))
                .reason,
            "FIELD_DUPLICATE");
  // An argument of the wrong kind is reported where it is used.
  EXPECT_EQ(message(model({dense()},
                          {use("dense", {{"units", std::string("ten")}}, "d"), layer("Gemm")})),
            "model.blocks[0].layers[0] 'd/gemm1' of block 'dense': units: has the wrong type, "
            "expected a whole number");
}

TEST(BlockRefusals, NoBlockContainsItself) {
  EXPECT_EQ(rows_refusal(model({block("a", {use("a")})}, {use("a"), layer("Gemm")})).message,
            "model.blocks[0].layers[0].use.block: 'a' is this block itself or comes later, "
            "expected an earlier block");
  EXPECT_NE(rows_refusal(
                model({block("a", {use("b")}), block("b", {use("a")})}, {use("a"), layer("Gemm")}))
                .message.find("comes later"),
            std::string::npos);
}

TEST(BlockRefusals, GroupsAndLayersShareNoName) {
  EXPECT_NE(rows_refusal(model({}, {layer("Gemm", {{"units", int64_t{3}}}, "a"),
                                    layer("Gemm", {}, "a/grad")}))
                .message.find("'a' also begins the names of other layers"),
            std::string::npos);
  EXPECT_EQ(rows_refusal(model({}, {layer("Gemm", {}, "loss/a")})).reason, "NAME_RESERVED");
  for (const char* name : {"a/", "/a", "a//b", "A/b", "a/b.c", "1/a"}) {
    EXPECT_EQ(rows_refusal(model({}, {layer("Gemm", {}, name)})).reason, "NAME_MALFORMED") << name;
  }
}

// Blocks that expand exponentially are refused before any layer is created; the largest allowed
// model is checked and built in well under a second.
TEST(BlockLimits, AreCheckedBeforeExpansion) {
  std::vector<BlockSpec> blocks = {block("b0", {layer("Relu")})};
  for (int i = 1; i < 60; ++i) {
    const std::string before = "b" + std::to_string(i - 1);
    blocks.push_back(block("b" + std::to_string(i), {use(before, {}, "x"), use(before, {}, "y")}));
  }
  EXPECT_EQ(rows_refusal(model(blocks, {use("b59"), layer("Gemm")})).reason, "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(rows_refusal(model({blocks[0]}, {use("b0", {}, "x", {}, 10000), layer("Gemm")})).reason,
            "FIELD_OUT_OF_RANGE");
  const std::clock_t start = std::clock();  // CPU time, since the machine may be busy
  const ModelSpec spec = model({blocks[0]}, {use("b0", {}, "x", {}, 9999), layer("Gemm")});
  EXPECT_TRUE(build_model(spec, kRows, {.batch_size = 4}).ok());
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);
}

// The model has few layers, but each has a long attribute; or the attribute is short, but repeated
// by nested blocks.
TEST(BlockLimits, CountNamesAndValuesOfEveryRepetition) {
  const Attributes long_list{{"shape", std::vector<int64_t>(20'000, 1)}};
  const Error e = rows_refusal(model({block("b", {layer("Reshape", long_list)})},
                                     {use("b", {}, "x", {}, 9000), layer("Gemm")}));
  EXPECT_EQ(e.reason, "FIELD_OUT_OF_RANGE");
  EXPECT_NE(e.message.find("more than 10000000 characters of names and values"), std::string::npos)
      << e.message;
  std::vector<BlockSpec> chain = {block("b0", {layer("Relu")})};
  for (int i = 1; i < 200; ++i) {
    chain.push_back(block("b" + std::to_string(i), {use("b" + std::to_string(i - 1), {}, "x")}));
  }
  EXPECT_NE(rows_refusal(model(chain, {use("b199", {}, "x", {}, 9000), layer("Gemm")}))
                .message.find("more than 40000 uses of blocks"),
            std::string::npos);
}

// Checking such names must not take memory or time that grows with the square of the request's
// size.
TEST(BlockLimits, BadNamesCostLittle) {
  const std::clock_t start = std::clock();
  std::string deep = "a";
  for (int i = 0; i < 1'000'000; ++i) deep += "/a";
  EXPECT_EQ(rows_refusal(model({}, {layer("Gemm", {}, deep)})).reason, "NAME_MALFORMED");
  std::vector<LayerSpec> astray;
  for (int i = 0; i < 9000; ++i) {
    const std::string name = "some_rather_long_name_of_a_layer_" + std::to_string(i);
    astray.push_back(layer("Relu", {}, name, {"an_input_that_is_not_there_" + std::to_string(i)}));
  }
  EXPECT_EQ(rows_refusal(model({}, astray)).violations.size(), 16u);
  std::vector<std::string> many(50'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = "p" + std::to_string(i);
  EXPECT_NE(rows_refusal(model({block("b", {layer("Relu")}, many)}, {use("b"), layer("Gemm")}))
                .message.find("has 50000 names, expected at most 64"),
            std::string::npos);
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

TEST(BlockLimits, TensorsAndInputsAreCounted) {
  BlockSpec wide = block(
      "wide", {layer("Split", {{"num_outputs", int64_t{1000}}}, "s"), layer("Concat", {}, "c")});
  for (int i = 0; i < 1000; ++i) wide.layers[1].inputs.push_back("s." + std::to_string(i));
  ModelSpec spec = model({wide}, {layer("Gemm", {{"units", int64_t{1000}}}),
                                  use("wide", {}, "x", {}, 70), layer("Gemm")});
  EXPECT_TRUE(build_model(spec, kRows, {.batch_size = 4}).ok());
  spec.layers[1].repeat = 80;
  EXPECT_EQ(rows_refusal(spec).reason, "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(rows_refusal(spec).message,
            "model.blocks[0].layers[1] 'x/74/c' of block 'wide': with it the model has more than "
            "150000 tensors and inputs of layers, expected at most that many");
}

}  // namespace
}  // namespace trainyard
