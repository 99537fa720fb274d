// Autoencoders, which compress their input to a short code and learn to reconstruct it: Hinton,
// Salakhutdinov, "Reducing the Dimensionality of Data with Neural Networks" (2006).
#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

constexpr int64_t kSide = 3;    // height and width of the kernels
constexpr int64_t kStride = 2;  // each stage halves height and width

// A stack of layers with an activation after each affine layer but the code and the last one.
class Stack {
 public:
  explicit Stack(std::string activation) : activation_(std::move(activation)) {}

  void add(std::string name, std::string_view op, Attributes attributes = {}) {
    layers_.push_back(preset_layer(std::move(name), op, std::move(attributes)));
  }
  void activate() { add(activation_ + std::to_string(++activations_), activation_op(activation_)); }
  std::vector<LayerSpec> take() { return std::move(layers_); }

 private:
  std::string activation_;
  int activations_ = 0;
  std::vector<LayerSpec> layers_;
};

void add_dense(const std::vector<int64_t>& hidden, int64_t latent, Stack& stack) {
  int number = 0;
  const auto dense = [&](int64_t units) {
    stack.add("fc" + std::to_string(++number), "Gemm", {{"units", units}});
    stack.activate();
  };
  for (const int64_t units : hidden) dense(units);
  stack.add("code", "Gemm", {{"units", latent}});
  for (auto units = hidden.rbegin(); units != hidden.rend(); ++units) dense(*units);
  stack.add("fc" + std::to_string(++number), "Gemm");  // its size follows from the input
}

void add_convolutional(const std::vector<int64_t>& channels, int64_t latent, const Shape& image,
                       Stack& stack) {
  const std::vector<int64_t> kernel(2, kSide), strides(2, kStride), pads(4, kSide / 2);
  // Input size of each stage, then the output size of the last one.
  std::vector<Shape> sizes = {image};
  for (const int64_t c : channels) {
    const Shape& x = sizes.back();
    stack.add(
        "conv" + std::to_string(sizes.size()), "Conv",
        {{"out_channels", c}, {"kernel_shape", kernel}, {"strides", strides}, {"pads", pads}});
    stack.activate();
    sizes.emplace_back(std::vector<int64_t>{c, (x[1] + 1) / kStride, (x[2] + 1) / kStride});
  }
  stack.add("code", "Gemm", {{"units", latent}});
  stack.add("fc1", "Gemm", {{"units", sizes.back().elements()}});
  stack.activate();
  stack.add(
      "image", "Reshape",
      {{"shape", std::vector<int64_t>{sizes.back().dims().begin(), sizes.back().dims().end()}}});
  for (size_t i = channels.size(); i > 0; --i) {
    const Shape& y = sizes[i - 1];
    // Without output_padding, a stage outputs an odd number of rows or columns, so a stage whose
    // counterpart read an even number needs one more.
    const std::vector<int64_t> extra = {1 - y[1] % kStride, 1 - y[2] % kStride};
    stack.add("deconv" + std::to_string(channels.size() - i + 1), "ConvTranspose",
              {{"out_channels", y[0]},
               {"kernel_shape", kernel},
               {"strides", strides},
               {"pads", pads},
               {"output_padding", extra}});
    if (i > 1) stack.activate();
  }
}

Layers expand_autoencoder(const Attributes& parameters, const ModelInterface& interface) {
  const bool image = interface.input.rank() == 3;
  const std::string type = parameters.get_string("type", image ? "conv" : "dense");
  if (type == "conv" && !image) {
    return field_error("SHAPE_MISMATCH", "model.autoencoder.type",
                       "conv needs images, but one sample of the dataset is " +
                           interface.input.to_string() + "; expected dense");
  }
  const bool conv = type == "conv";
  const std::string unused = conv ? "hidden" : "channels";
  if (parameters.find(unused) != nullptr) {
    return field_error(
        "FIELD_UNUSED", "model.autoencoder." + unused,
        std::string("has no effect here; remove it or choose type: ") + (conv ? "dense" : "conv"));
  }
  Stack stack(parameters.get_string("activation", "relu"));
  // Only the input has noise, so the model learns to remove it (Vincent et al. 2008).
  if (const double dropout = parameters.get_float("dropout", 0); dropout > 0) {
    stack.add("noise", "Dropout", {{"ratio", dropout}});
  }
  const int64_t latent = parameters.get_int("latent", 32);
  if (conv) {
    add_convolutional(spell_out(parameters, "channels", 1, {16, 32}), latent, interface.input,
                      stack);
  } else {
    add_dense(spell_out(parameters, "hidden", 1, {128}), latent, stack);
  }
  return stack.take();
}

}  // namespace

std::vector<PresetKind> autoencoder_presets() {
  AttributeRule hidden = dims_rule("hidden", false, 1, 65536);
  hidden.count_max = 64;
  return {{.name = "autoencoder",
           .parameters = {choice_rule("type", {"dense", "conv"}), hidden,
                          dims_rule("channels", false, 1, 4096),
                          integer_rule("latent", false, 1, 65536), activation_rule(),
                          real_rule("dropout", false, {.max = 1, .max_excluded = true})},
           .expand = expand_autoencoder,
           .reconstructs = true}};
}

}  // namespace trainyard
