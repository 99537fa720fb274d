// mlp and lenet5.
#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

constexpr int64_t kLeNetSideMin = 8;     // two poolings leave 2x2
constexpr int64_t kLeNetSidePlain = 16;  // from here the unpadded 5x5 convolutions fit

LayerSpec layer(std::string name, std::string_view op, Attributes attributes = {}) {
  return {std::move(name), std::string(op), {}, std::move(attributes)};
}

Layers expand_mlp(const Attributes& parameters, const ModelInterface&) {
  const std::string activation = parameters.get_string("activation", "relu");
  const double dropout = parameters.get_float("dropout", 0);
  int number = 0;
  std::vector<LayerSpec> layers;
  for (const int64_t units : spell_out(parameters, "hidden", 1, {})) {
    const std::string suffix = std::to_string(++number);
    layers.push_back(layer("fc" + suffix, "Gemm", {{"units", units}}));
    layers.push_back(layer(activation + suffix, activation_op(activation)));
    if (dropout > 0) {
      layers.push_back(layer("dropout" + suffix, "Dropout", {{"ratio", dropout}}));
    }
  }
  layers.push_back(layer("fc" + std::to_string(number + 1), "Gemm"));
  return layers;
}

// The activation stands behind the pooling: for a monotone function the two commute, value and
// gradient, and behind the pooling there is a quarter of the work.
Layers expand_lenet5(const Attributes&, const ModelInterface& interface) {
  if (Status s = need_images(interface, "lenet5", kLeNetSideMin); !s.ok()) {
    return std::move(s).error();
  }
  const Shape& x = interface.input;
  const bool plain = x[1] >= kLeNetSidePlain && x[2] >= kLeNetSidePlain;
  const std::vector<int64_t> kernel =
      plain ? std::vector<int64_t>{5, 5} : std::vector<int64_t>{3, 3};
  const std::vector<int64_t> pads(4, plain ? 0 : 1);
  const std::vector<int64_t> window = {2, 2};
  const auto conv = [&](std::string name, int64_t channels) {
    return layer(std::move(name), "Conv",
                 {{"out_channels", channels}, {"kernel_shape", kernel}, {"pads", pads}});
  };
  return std::vector<LayerSpec>{conv("conv1", 20),
                                layer("pool1", "MaxPool", {{"kernel_shape", window}}),
                                layer("relu1", "Relu"),
                                conv("conv2", 50),
                                layer("pool2", "MaxPool", {{"kernel_shape", window}}),
                                layer("relu2", "Relu"),
                                layer("fc1", "Gemm", {{"units", int64_t{500}}}),
                                layer("relu3", "Relu"),
                                layer("fc2", "Gemm")};
}

}  // namespace

std::vector<PresetKind> classic_presets() {
  AttributeRule hidden = dims_rule("hidden", false, 1, 65536);
  hidden.count_min = 0;
  hidden.count_max = 64;
  return {{"mlp",
           {hidden, choice_rule("activation", {"relu", "sigmoid", "tanh", "gelu"}),
            real_rule("dropout", false, {.max = 1, .max_excluded = true})},
           expand_mlp},
          {"lenet5", {}, expand_lenet5}};
}

}  // namespace trainyard
