// VGG (Simonyan and Zisserman 2014) with 11, 13, 16 and 19 layers that have weights. Layers have
// the names of torchvision's parameters, with "/" for ".", and the same initialization.
#include <algorithm>
#include <array>

#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

constexpr int64_t kReduction = 32;  // five poolings, each of which halves the side
constexpr int64_t kHeadSide = 7;    // side of the map that the head gets from a 224x224 image
constexpr double kLinearStd = 0.01;

struct Vgg {
  const char* name;
  std::array<int, 5> convolutions;  // convolutions in each stage; a max pooling follows each stage
};
constexpr Vgg kVgg11 = {"vgg11", {1, 1, 2, 2, 2}};
constexpr Vgg kVgg13 = {"vgg13", {2, 2, 2, 2, 2}};
constexpr Vgg kVgg16 = {"vgg16", {2, 2, 3, 3, 3}};
constexpr Vgg kVgg19 = {"vgg19", {2, 2, 4, 4, 4}};

// Adds layers numbered as in torchvision: "features/0", "features/1".
class Numbered {
 public:
  Numbered(std::string stem, std::vector<LayerSpec>& layers)
      : stem_(std::move(stem)), layers_(layers) {}
  void add(std::string_view op, Attributes attributes = {}) {
    layers_.push_back(
        preset_layer(stem_ + "/" + std::to_string(number_++), op, std::move(attributes)));
  }

 private:
  std::string stem_;
  int number_ = 0;
  std::vector<LayerSpec>& layers_;
};

// The window that averages `side` rows or columns to kHeadSide; a smaller side is left unchanged.
struct HeadWindow {
  int64_t kernel = 1, stride = 1;
};
HeadWindow head_window(int64_t side) {
  if (side <= kHeadSide) return {};
  const int64_t stride = side / kHeadSide;
  return {side - (kHeadSide - 1) * stride, stride};
}

// torchvision pools images of any size to 7x7, followed by two layers of 4096 units. Pooling a
// smaller map to 7x7 would add no information, so it is used without pooling, with 512 units.
void add_head(const Attributes& parameters, const Shape& image, int64_t width,
              std::vector<LayerSpec>& layers) {
  const int64_t H = image[1] / kReduction, W = image[2] / kReduction;
  if (H > kHeadSide || W > kHeadSide) {
    const HeadWindow rows = head_window(H), columns = head_window(W);
    layers.push_back(
        preset_layer("avgpool", "AveragePool",
                     {{"kernel_shape", std::vector<int64_t>{rows.kernel, columns.kernel}},
                      {"strides", std::vector<int64_t>{rows.stride, columns.stride}}}));
  }
  const bool large = H >= kHeadSide && W >= kHeadSide;
  const int64_t hidden = parameters.get_int("hidden", large ? 64 * width : 8 * width);
  const double dropout = parameters.get_float("dropout", 0.5);
  const auto linear = [](Attributes attributes) {
    attributes.set("initializer", std::string("normal"));
    attributes.set("initializer_std", kLinearStd);
    return attributes;
  };
  Numbered classifier("classifier", layers);
  for (int i = 0; i < 2; ++i) {
    classifier.add("Gemm", linear({{"units", hidden}}));
    classifier.add("Relu");
    classifier.add("Dropout", {{"ratio", dropout}});
  }
  classifier.add("Gemm", linear({}));
}

Layers expand_vgg(const Vgg& vgg, const Attributes& parameters, const ModelInterface& interface) {
  if (Status s = need_images(interface, vgg.name, kReduction); !s.ok()) return std::move(s).error();
  const bool normalize = parameters.get_int("batch_normalization", 0) != 0;
  const int64_t width = parameters.get_int("width", 64);
  std::vector<LayerSpec> layers;
  Numbered features("features", layers);
  for (size_t stage = 0; stage < vgg.convolutions.size(); ++stage) {
    const int64_t channels = width << std::min<size_t>(stage, 3);
    for (int i = 0; i < vgg.convolutions[stage]; ++i) {
      features.add("Conv", {{"out_channels", channels},
                            {"kernel_shape", int64_t{3}},
                            {"pads", int64_t{1}},
                            {"initializer", std::string("kaiming_normal")}});
      if (normalize) features.add("BatchNormalization");
      features.add("Relu");
    }
    features.add("MaxPool", {{"kernel_shape", int64_t{2}}});
  }
  add_head(parameters, interface.input, width, layers);
  return layers;
}

template <const Vgg& vgg>
Layers expand(const Attributes& parameters, const ModelInterface& interface) {
  return expand_vgg(vgg, parameters, interface);
}

}  // namespace

std::vector<PresetKind> vgg_presets() {
  const std::vector<AttributeRule> parameters = {
      boolean_rule("batch_normalization"), integer_rule("width", false, 1, 1024),
      integer_rule("hidden", false, 1, 65536),
      real_rule("dropout", false, {.max = 1, .max_excluded = true})};
  return {{kVgg11.name, parameters, expand<kVgg11>},
          {kVgg13.name, parameters, expand<kVgg13>},
          {kVgg16.name, parameters, expand<kVgg16>},
          {kVgg19.name, parameters, expand<kVgg19>}};
}

}  // namespace trainyard
