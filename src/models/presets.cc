// Presets: a preset is nothing but a layer list, which users can print and change.
#include <array>

#include "src/base/text.h"
#include "src/models/layer_schema.h"
#include "src/models/model_spec.h"

namespace trainyard {

namespace {

constexpr int64_t kLeNetSideMin = 8;     // two poolings leave 2x2
constexpr int64_t kLeNetSidePlain = 16;  // from here the unpadded 5x5 convolutions fit

std::vector<AttributeRule> mlp_rules() {
  AttributeRule hidden;
  hidden.kind = AttributeRule::Kind::kDims;
  hidden.name = "hidden";
  hidden.min = 1;
  hidden.max = 65536;
  hidden.count_min = 0;
  hidden.count_max = 64;
  AttributeRule activation;
  activation.kind = AttributeRule::Kind::kText;
  activation.name = "activation";
  activation.choices = {"relu", "sigmoid", "tanh", "gelu"};
  AttributeRule dropout;
  dropout.kind = AttributeRule::Kind::kFloat;
  dropout.name = "dropout";
  dropout.max = 1;
  dropout.max_excluded = true;
  return {hidden, activation, dropout};
}

LayerSpec layer(std::string name, std::string op, Attributes attributes = {}) {
  return {std::move(name), std::move(op), {}, std::move(attributes)};
}

std::vector<LayerSpec> expand_mlp(const Attributes& parameters) {
  std::vector<int64_t> hidden;
  if (const Attribute* value = parameters.find("hidden")) {
    if (const auto* one = std::get_if<int64_t>(value)) {
      hidden = {*one};
    } else {
      hidden = std::get<std::vector<int64_t>>(*value);
    }
  }
  const std::string activation = parameters.get_string("activation", "relu");
  std::string op;
  for (const LayerRule& rule : layer_rules()) {
    if (rule.field == activation) op = rule.op;
  }
  const double dropout = parameters.get_float("dropout", 0);

  std::vector<LayerSpec> layers;
  for (size_t i = 0; i < hidden.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    layers.push_back(layer("fc" + number, "Gemm", {{"units", hidden[i]}}));
    layers.push_back(layer(activation + number, op));
    if (dropout > 0) {
      layers.push_back(layer("dropout" + number, "Dropout", {{"ratio", dropout}}));
    }
  }
  layers.push_back(layer("fc" + std::to_string(hidden.size() + 1), "Gemm"));
  return layers;
}

// The activation stands behind the pooling: for a monotone function the two commute, value and
// gradient, and behind the pooling there is a quarter of the work.
Result<std::vector<LayerSpec>> expand_lenet5(const ModelInterface& interface) {
  const Shape& x = interface.input;
  if (x.rank() != 3 || x[1] < kLeNetSideMin || x[2] < kLeNetSideMin) {
    return field_error("SHAPE_MISMATCH", "model.lenet5",
                       "needs images of at least 8x8, but one sample of the dataset is " +
                           x.to_string() + (x.rank() == 3 ? "" : "; use model.mlp for rows"));
  }
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

std::vector<std::string> preset_names() { return {"mlp", "lenet5"}; }

Result<std::vector<LayerSpec>> expand_preset(const ModelSpec& spec,
                                             const ModelInterface& interface) {
  Violations violations;
  const std::string path = "model." + spec.preset;
  if (spec.preset == "mlp") {
    check_attributes(mlp_rules(), spec.parameters, path, path, violations);
    if (!violations.empty()) return violations.to_error();
    return expand_mlp(spec.parameters);
  }
  if (spec.preset == "lenet5") {
    check_attributes(std::vector<AttributeRule>{}, spec.parameters, path, path, violations);
    if (!violations.empty()) return violations.to_error();
    return expand_lenet5(interface);
  }
  const std::vector<std::string> names = preset_names();
  std::string description = quoted_value(spec.preset) + " is not a preset, expected mlp or lenet5";
  if (const auto nearest = nearest_name(spec.preset, names)) {
    description += ", did you mean '" + *nearest + "'?";
  }
  return field_error("FIELD_UNKNOWN", "model", std::move(description));
}

}  // namespace trainyard
