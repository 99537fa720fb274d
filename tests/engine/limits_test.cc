// Tests of absurd models: which are refused, with the layer's name, and how long the largest
// accepted model takes to plan.
#include <gtest/gtest.h>

#include "src/job/recipe.h"
#include "src/models/layer.h"
#include "src/planning/programs.h"

namespace trainyard {
namespace {

using Ints = std::vector<int64_t>;

const ModelInterface kImages{{3, 8, 8}, 0, TargetForm::kClass, 4};

LayerSpec layer(std::string op, Attributes attributes = {}, std::string name = "",
                std::vector<std::string> inputs = {}) {
  LayerSpec spec;
  spec.op = std::move(op);
  spec.attributes = std::move(attributes);
  spec.name = std::move(name);
  spec.inputs = std::move(inputs);
  return spec;
}

/// Returns the refusal of a model whose layers are `layers` and a classifier.
std::string refusal(std::vector<LayerSpec> layers, const ModelInterface& interface = kImages) {
  layers.push_back(layer("Gemm"));
  ModelSpec spec;
  spec.layers = std::move(layers);
  const Result<Model> model = build_model(spec, interface, {.batch_size = 2});
  return model.ok() ? "accepted" : model.error().message;
}

TEST(Limits, ImpossibleShapesAreRefusedWithTheLayersName) {
  const std::string first = "model.layers[0] 'it': ";
  const auto said = [&](std::string op, Attributes attributes) {
    return refusal({layer(std::move(op), std::move(attributes), "it")});
  };
  EXPECT_EQ(said("GroupNormalization", {{"num_groups", int64_t{2}}}),
            first +
                "num_groups: 2 does not divide the 3 channels of [2, 3, 8, 8], expected a "
                "divisor of them");
  EXPECT_EQ(said("GroupNormalization", {}),
            first + "num_groups: is required: a whole number in 1..65536");
  EXPECT_EQ(refusal({layer("MaxPool", {{"kernel_shape", Ints{8, 8}}}),
                     layer("InstanceNormalization", {}, "it")}),
            "model.layers[1] 'it': x: shape [2, 3, 1, 1] has 1 value in each group, expected 2 or "
            "more");
  EXPECT_EQ(said("Pad", {{"pads", int64_t{8}}, {"mode", std::string("reflect")}}),
            first +
                "pads: [8, 8, 8, 8] reflect more elements than there are: axis 2 of [2, 3, 8, 8] "
                "takes at "
                "most 7");
  EXPECT_EQ(said("Pad", {{"pads", Ints{1, 1, 1}}}),
            first +
                "pads: has 3 entries, expected two for each of 1..3 axes of one sample of "
                "[2, 3, 8, 8]");
  EXPECT_EQ(said("Pad", {{"pads", Ints{1, 1}}, {"axes", int64_t{0}}}),
            first + "axes: 0 is the batch, whose samples must not mix; expected 1..3 or -1..-3");
  EXPECT_EQ(
      said("Pad", {{"pads", Ints{1, 1, 1}}, {"axes", Ints{2}}}),
      first + "pads: [1, 1, 1], expected 2 integers: before each of the axes [2], then after each");
  EXPECT_EQ(said("Pad", {{"pads", int64_t{1}}, {"mode", std::string("edge")}, {"value", 1.0}}),
            first + "value: has no effect with mode edge, expected mode constant");
  EXPECT_EQ(said("Resize", {}), first + "sizes: expected exactly one of sizes and scales");
  EXPECT_EQ(said("Resize", {{"scales", 0.1}}),
            first + "scales: the height of [2, 3, 8, 8] would become 0, expected 1..65536");
  EXPECT_EQ(said("Resize", {{"scales", 60000.0}}),
            first + "scales: the height of [2, 3, 8, 8] would become 480000, expected 1..65536");
  EXPECT_EQ(said("Resize", {{"sizes", Ints{0, 4}}}), first +
                                                         "sizes: 0 is out of range, expected "
                                                         "1..65536");
  EXPECT_EQ(said("Resize", {{"scales", int64_t{2}},
                            {"mode", std::string("linear")},
                            {"nearest_mode", std::string("ceil")}}),
            first + "nearest_mode: has no effect with mode linear, expected mode nearest");
  EXPECT_EQ(
      refusal({layer("Resize", {{"scales", int64_t{2}}}, "it")}, {{16}, 0, TargetForm::kClass, 4}),
      first + "needs images [N, C, H, W], but its input is [2, 16]");
  EXPECT_EQ(said("MaxPool", {{"kernel_shape", int64_t{3}}, {"dilations", int64_t{4}}}),
            first +
                "kernel_shape: [9, 9] (dilated) is larger than the image [8, 8] with its "
                "padding, [8, 8]");
  // The window's two cells are 9 apart: one is in the padding before the image, the other in the
  // padding after it.
  EXPECT_EQ(said("AveragePool", {{"kernel_shape", int64_t{2}},
                                 {"dilations", int64_t{9}},
                                 {"pads", int64_t{1}},
                                 {"strides", int64_t{1}}}),
            first +
                "dilations: [9, 9] lead a window past the image [8, 8] with none of its cells "
                "inside, expected smaller ones or fewer pads");
}

TEST(Limits, CyclesAndEmptySizesAreRefusedWithTheLayersName) {
  EXPECT_EQ(refusal({layer("Relu", {}, "a", {"b"}), layer("Relu", {}, "b", {"a"})}),
            "model.layers[0] 'a': inputs: 'b' comes later, expected an earlier layer or 'input'");
  EXPECT_EQ(refusal({layer("Add", {}, "a", {"input", "a"})}),
            "model.layers[0] 'a': inputs: 'a' is the layer itself, expected an earlier layer");
  EXPECT_EQ(
      refusal({layer("Conv", {{"out_channels", int64_t{0}}, {"kernel_shape", int64_t{3}}}, "it")}),
      "model.layers[0] 'it': out_channels: 0 is out of range, expected 1..65536");
  EXPECT_EQ(
      refusal({layer("Reshape", {{"shape", Ints{0, -1}}}, "it")}),
      "model.layers[0] 'it': shape: [0, -1] is not possible, expected sizes of at least 1 and "
      "at most one -1");
  EXPECT_EQ(refusal({layer("Slice", {{"starts", Ints{2}}, {"ends", Ints{2}}}, "it")}),
            "model.layers[0] 'it': ends: no element of [2, 3, 8, 8] is between starts [2] and ends "
            "[2]");
}

TEST(Limits, TenThousandLayersArePlannedAndOneMoreIsRefused) {
  std::vector<LayerSpec> layers(kLayersMax - 1, layer("Relu"));
  ModelSpec spec;
  spec.layers = layers;
  spec.layers.push_back(layer("Gemm"));
  const Result<BoundProgram> program = compile_training(spec, Recipe{}, kImages, 2);
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_GE(program->program.order.size(), kLayersMax);
  layers.push_back(layer("Relu"));
  EXPECT_NE(refusal(layers).find("expected at most 10000"), std::string::npos) << refusal(layers);
}

}  // namespace
}  // namespace trainyard
