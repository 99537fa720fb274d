// ResNet (He et al. 2015) with 18, 34, 50, 101 or 152 layers that have weights. Layers have the
// names of torchvision's parameters, with "/" for ".", and the same initialization. The strides of
// bottleneck blocks are in the 3x3 convolutions, as in torchvision.
#include <algorithm>
#include <array>

#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

// Images up to this side get the stem for CIFAR, because ImageNet's halves the size twice.
constexpr int64_t kCifarSideMax = 64;

struct ResNet {
  const char* name;
  std::array<int, 4> blocks;  // number of blocks in each stage
  int64_t expansion;          // channels out of a block per channel inside: 4 for a bottleneck
};
constexpr ResNet kResNet18 = {"resnet18", {2, 2, 2, 2}, 1};
constexpr ResNet kResNet34 = {"resnet34", {3, 4, 6, 3}, 1};
constexpr ResNet kResNet50 = {"resnet50", {3, 4, 6, 3}, 4};
constexpr ResNet kResNet101 = {"resnet101", {3, 4, 23, 3}, 4};
constexpr ResNet kResNet152 = {"resnet152", {3, 8, 36, 3}, 4};

class ResNetBuilder {
 public:
  explicit ResNetBuilder(std::vector<LayerSpec>& layers) : layers_(layers) {}

  void add(std::string name, std::string_view op, Attributes attributes = {},
           std::vector<std::string> inputs = {}) {
    layers_.push_back(preset_layer(std::move(name), op, std::move(attributes), std::move(inputs)));
  }
  /// Adds a convolution without bias, padded so that only the stride reduces the size, and its
  /// batch normalization.
  void add_conv(std::string conv, std::string norm, int64_t channels, int64_t kernel,
                int64_t stride, std::vector<std::string> inputs = {}) {
    add(std::move(conv), "Conv",
        {{"out_channels", channels},
         {"kernel_shape", kernel},
         {"strides", stride},
         {"pads", kernel / 2},
         {"bias", int64_t{0}},
         {"initializer", std::string("kaiming_normal")}},
        std::move(inputs));
    add(std::move(norm), "BatchNormalization");
  }
  /// Adds the branch of a block, then the sum of branch and shortcut. `x` is the name of the input
  /// layer; returns the name of the output layer.
  std::string add_block(const std::string& name, const std::string& x, int64_t width,
                        int64_t stride, int64_t expansion, bool project) {
    std::string shortcut = x, branch = name + "/bn2";
    if (expansion == 1) {
      add_conv(name + "/conv1", name + "/bn1", width, 3, stride, {x});
      add(name + "/relu1", "Relu");
      add_conv(name + "/conv2", name + "/bn2", width, 3, 1);
    } else {
      add_conv(name + "/conv1", name + "/bn1", width, 1, 1, {x});
      add(name + "/relu1", "Relu");
      add_conv(name + "/conv2", name + "/bn2", width, 3, stride);
      add(name + "/relu2", "Relu");
      add_conv(name + "/conv3", name + "/bn3", width * expansion, 1, 1);
      branch = name + "/bn3";
    }
    if (project) {
      shortcut = name + "/downsample/1";
      add_conv(name + "/downsample/0", shortcut, width * expansion, 1, stride, {x});
    }
    add(name + "/add", "Add", {}, {branch, shortcut});
    add(name + "/relu", "Relu");
    return name + "/relu";
  }

 private:
  std::vector<LayerSpec>& layers_;
};

bool has_cifar_stem(const Attributes& parameters, const ModelInterface& interface) {
  const std::string stem = parameters.get_string("stem", "auto");
  if (stem != "auto") return stem == "cifar";
  const Shape& x = interface.input;
  return x.rank() != 3 || std::min(x[1], x[2]) <= kCifarSideMax;
}

Layers expand_resnet(const ResNet& net, const Attributes& parameters,
                     const ModelInterface& interface) {
  const bool cifar = has_cifar_stem(parameters, interface);
  const int64_t side_min = cifar ? 8 : 32;  // the total stride of the network
  if (Status s = need_images(interface, net.name, side_min); !s.ok()) return std::move(s).error();
  const int64_t width = parameters.get_int("width", 64);

  std::vector<LayerSpec> layers;
  ResNetBuilder b(layers);
  b.add_conv("conv1", "bn1", width, cifar ? 3 : 7, cifar ? 1 : 2);
  b.add("relu", "Relu");
  std::string x = "relu";
  if (!cifar) {
    b.add("maxpool", "MaxPool",
          {{"kernel_shape", int64_t{3}}, {"strides", int64_t{2}}, {"pads", int64_t{1}}});
    x = "maxpool";
  }
  int64_t channels = width;
  for (size_t stage = 0; stage < net.blocks.size(); ++stage) {
    const int64_t stage_width = width << stage;
    const int64_t stage_channels = stage_width * net.expansion;
    for (int i = 0; i < net.blocks[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const bool project = stride != 1 || channels != stage_channels;
      x = b.add_block("layer" + std::to_string(stage + 1) + "/" + std::to_string(i), x, stage_width,
                      stride, net.expansion, project);
      channels = stage_channels;
    }
  }
  b.add("avgpool", "GlobalAveragePool");
  b.add("fc", "Gemm");
  return layers;
}

template <const ResNet& net>
Layers expand(const Attributes& parameters, const ModelInterface& interface) {
  return expand_resnet(net, parameters, interface);
}

}  // namespace

std::vector<PresetKind> resnet_presets() {
  const std::vector<AttributeRule> parameters = {choice_rule("stem", {"auto", "imagenet", "cifar"}),
                                                 integer_rule("width", false, 1, 1024)};
  return {{kResNet18.name, parameters, expand<kResNet18>},
          {kResNet34.name, parameters, expand<kResNet34>},
          {kResNet50.name, parameters, expand<kResNet50>},
          {kResNet101.name, parameters, expand<kResNet101>},
          {kResNet152.name, parameters, expand<kResNet152>}};
}

}  // namespace trainyard
