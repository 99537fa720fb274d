// VGG and ResNet equal the published networks, to the last parameter, on every image size they
// accept, and refuse unsuitable sizes. A wrong count means a different network under a known name.
#include <gtest/gtest.h>

#include <cmath>

#include "src/models/model_spec.h"
#include "tests/engine/model_support.h"

namespace trainyard {
namespace {

using testing::build;
using testing::parameters;
using testing::preset;
using testing::tensor;

ModelInterface images(int64_t side, int64_t classes = 1000, int64_t channels = 3) {
  return {{channels, side, side}, 0, TargetForm::kClass, classes};
}

std::string refusal_message(const ModelSpec& spec, const ModelInterface& interface) {
  const auto model = build_model(spec, interface, {.batch_size = 2});
  return model.ok() ? "accepted" : model.error().message;
}

TEST(ImagePresets, VggHasThePublishedParameterCounts) {
  const Attributes normalized{{"batch_normalization", int64_t{1}}};
  EXPECT_EQ(parameters(build(preset("vgg11"), images(224))), 132863336);
  EXPECT_EQ(parameters(build(preset("vgg13"), images(224))), 133047848);
  EXPECT_EQ(parameters(build(preset("vgg16"), images(224))), 138357544);
  EXPECT_EQ(parameters(build(preset("vgg19"), images(224))), 143667240);
  EXPECT_EQ(parameters(build(preset("vgg11", normalized), images(224))), 132868840);
  EXPECT_EQ(parameters(build(preset("vgg16", normalized), images(224))), 138365992);
}

TEST(ImagePresets, VggHeadFollowsTheImage) {
  const Model small = build(preset("vgg16"), images(32, 10));
  EXPECT_EQ(tensor(small, "classifier/0.weight").type.shape, (Shape{512, 512}));
  EXPECT_EQ(tensor(small, "classifier/6.weight").type.shape, (Shape{10, 512}));
  const Model middle = build(preset("vgg11"), images(100, 10));  // a 3x3 feature map
  EXPECT_EQ(tensor(middle, "classifier/0.weight").type.shape, (Shape{512, 512 * 9}));
  const Model large = build(preset("vgg11"), images(256));  // an 8x8 feature map, averaged to 7x7
  EXPECT_EQ(parameters(large), 132863336);
  EXPECT_EQ(tensor(large, "avgpool").type.shape, (Shape{2, 512, 7, 7}));
  const Model wide = build(preset("vgg11"), {{3, 64, 448}, 0, TargetForm::kClass, 10});
  EXPECT_EQ(tensor(wide, "avgpool").type.shape, (Shape{2, 512, 2, 7}));
  const Model narrow =
      build(preset("vgg11", {{"width", int64_t{4}}, {"dropout", 0.0}, {"hidden", int64_t{20}}}),
            images(32, 10));
  EXPECT_EQ(tensor(narrow, "classifier/0.weight").type.shape, (Shape{20, 32}));
}

TEST(ImagePresets, ResNetHasThePublishedParameterCounts) {
  EXPECT_EQ(parameters(build(preset("resnet18"), images(224))), 11689512);
  EXPECT_EQ(parameters(build(preset("resnet34"), images(224))), 21797672);
  EXPECT_EQ(parameters(build(preset("resnet50"), images(224))), 25557032);
  EXPECT_EQ(parameters(build(preset("resnet101"), images(224))), 44549160);
  EXPECT_EQ(parameters(build(preset("resnet152"), images(224))), 60192808);
  // The stem for CIFAR and ten classes: papers on CIFAR-10 give this count.
  EXPECT_EQ(parameters(build(preset("resnet18"), images(32, 10))), 11173962);
}

TEST(ImagePresets, ResNetStemFollowsTheImage) {
  const Model small = build(preset("resnet18"), images(32, 10));
  EXPECT_EQ(tensor(small, "layer4/1/relu").type.shape, (Shape{2, 512, 4, 4}));
  const Model large = build(preset("resnet18"), images(224));
  EXPECT_EQ(tensor(large, "conv1.weight").type.shape, (Shape{64, 3, 7, 7}));
  EXPECT_EQ(tensor(large, "layer1/0/conv1").type.shape, (Shape{2, 64, 56, 56}));
  EXPECT_EQ(tensor(large, "layer4/1/relu").type.shape, (Shape{2, 512, 7, 7}));
  const Model chosen =
      build(preset("resnet18", {{"stem", std::string("imagenet")}}), images(32, 10));
  EXPECT_EQ(tensor(chosen, "layer4/1/relu").type.shape, (Shape{2, 512, 1, 1}));
  EXPECT_FALSE(small.graph.find_tensor("layer1/0/downsample/0.weight").has_value());
  const Model deep = build(preset("resnet50"), images(8, 10, 1));
  EXPECT_EQ(tensor(deep, "layer1/0/downsample/0.weight").type.shape, (Shape{256, 64, 1, 1}));
  EXPECT_EQ(tensor(deep, "layer4/2/conv2.weight").type.shape, (Shape{512, 512, 3, 3}));
}

// torchvision's initial values: convolutions by fan-out, batch normalization with scale 1 and shift
// 0. ResNet's last layer has PyTorch's default; VGG's linear layers have a deviation of 0.01 and
// biases of 0.
TEST(ImagePresets, InitialDistributionsAreThoseOfTorchvision) {
  const Model resnet = build(preset("resnet18"), images(224));
  const Initializer conv = tensor(resnet, "conv1.weight").initializer;
  EXPECT_EQ(conv.kind, Initializer::Kind::kNormal);
  EXPECT_EQ(conv.a, 0);
  EXPECT_DOUBLE_EQ(conv.b, std::sqrt(2.0 / (64 * 49)));
  EXPECT_EQ(tensor(resnet, "fc.weight").initializer.kind, Initializer::Kind::kUniform);
  EXPECT_DOUBLE_EQ(tensor(resnet, "fc.bias").initializer.b, 1 / std::sqrt(512.0));
  const Model vgg = build(preset("vgg11"), images(32, 10));
  EXPECT_DOUBLE_EQ(tensor(vgg, "features/3.weight").initializer.b, std::sqrt(2.0 / (128 * 9)));
  EXPECT_EQ(tensor(vgg, "features/3.bias").initializer.kind, Initializer::Kind::kConstant);
  EXPECT_EQ(tensor(vgg, "classifier/0.weight").initializer.kind, Initializer::Kind::kNormal);
  EXPECT_EQ(tensor(vgg, "classifier/0.weight").initializer.b, 0.01);
  EXPECT_EQ(tensor(vgg, "classifier/6.bias").initializer.kind, Initializer::Kind::kConstant);
}

TEST(ImagePresets, RefuseUnsuitableImages) {
  EXPECT_EQ(refusal_message(preset("vgg16"), images(28, 10)),
            "model.vgg16: needs images of at least 32x32, but one sample of the dataset is "
            "[3, 28, 28]");
  EXPECT_EQ(refusal_message(preset("resnet18"), images(7, 10)),
            "model.resnet18: needs images of at least 8x8, but one sample of the dataset is "
            "[3, 7, 7]");
  EXPECT_NE(refusal_message(preset("resnet50", {{"stem", std::string("imagenet")}}), images(28, 10))
                .find("at least 32x32"),
            std::string::npos);
  EXPECT_NE(
      refusal_message(preset("resnet18"), {{64}, 0, TargetForm::kClass, 10}).find("model.mlp"),
      std::string::npos);
  EXPECT_NE(
      refusal_message(preset("vgg11"), {{64}, 1000, TargetForm::kClass, 10}).find("[64] tokens"),
      std::string::npos);
  EXPECT_NE(refusal_message(preset("resnet18"), images(32, 1)).find("expected at least 2"),
            std::string::npos);
  EXPECT_NE(refusal_message(preset("resnet18", {{"stem", std::string("cifra")}}), images(32, 10))
                .find("auto or imagenet or cifar"),
            std::string::npos);
  EXPECT_NE(
      refusal_message(preset("vgg11", {{"widht", int64_t{8}}}), images(32, 10)).find("'width'"),
      std::string::npos);
}

// As in PyTorch's ConvTranspose2d, fan-in counts the output channels of one group.
TEST(ImageLayers, GroupsAndTransposesHaveTheRightWeights) {
  const auto layer = [](std::string op, Attributes attributes) {
    return LayerSpec{"", std::move(op), {}, std::move(attributes)};
  };
  ModelSpec spec;
  spec.layers = {layer("Conv", {{"out_channels", int64_t{8}},
                                {"kernel_shape", int64_t{3}},
                                {"group", int64_t{4}},
                                {"dilations", int64_t{2}}}),
                 layer("ConvTranspose", {{"out_channels", int64_t{6}},
                                         {"kernel_shape", int64_t{3}},
                                         {"strides", int64_t{2}},
                                         {"output_padding", int64_t{1}},
                                         {"group", int64_t{2}}}),
                 layer("Gemm", {})};
  const Model model = build(spec, images(9, 10, 4));
  EXPECT_EQ(tensor(model, "conv1.weight").type.shape, (Shape{8, 1, 3, 3}));
  EXPECT_EQ(tensor(model, "conv1").type.shape, (Shape{2, 8, 5, 5}));
  EXPECT_DOUBLE_EQ(tensor(model, "conv1.weight").initializer.b, 1 / std::sqrt(9.0));
  EXPECT_EQ(tensor(model, "conv_transpose1.weight").type.shape, (Shape{8, 3, 3, 3}));
  EXPECT_DOUBLE_EQ(tensor(model, "conv_transpose1.weight").initializer.b, 1 / std::sqrt(27.0));
  EXPECT_EQ(tensor(model, "conv_transpose1").type.shape, (Shape{2, 6, 12, 12}));
  spec.layers[0].attributes.set("group", int64_t{3});
  EXPECT_EQ(
      refusal_message(spec, images(9, 10, 4)),
      "model.layers[0] 'conv1': group: 3, expected a divisor of the input channels, 4, and of "
      "out_channels, 8");
  spec.layers[0].attributes.set("group", int64_t{4});
  spec.layers[1].attributes.set("output_padding", int64_t{2});
  EXPECT_EQ(
      refusal_message(spec, images(9, 10, 4)),
      "model.layers[1] 'conv_transpose1': output_padding: [2, 2], expected two values from 0, "
      "below strides [2, 2]");
}

}  // namespace
}  // namespace trainyard
