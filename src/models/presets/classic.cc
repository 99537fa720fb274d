// The presets mlp and lenet5.
#include <algorithm>
#include <set>

#include "src/models/layer.h"
#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

constexpr int64_t kLeNetSideMin = 8;     // two poolings reduce it to 2x2
constexpr int64_t kLeNetSidePlain = 16;  // from this size on, the unpadded 5x5 convolutions fit

LayerSpec layer(std::string name, std::string_view op, Attributes attributes = {}) {
  return {std::move(name), std::string(op), {}, std::move(attributes)};
}

// Returns the layer name of a column: "embedding_sepal_width" for "Sepal width". If another column
// has the same name already, a number is appended.
std::string embedding_name(const std::string& column, std::set<std::string>& taken) {
  constexpr size_t kColumnBytesMax = 40;  // a layer's name has at most 63 characters
  std::string name = "embedding_";
  for (const char c : column.substr(0, kColumnBytesMax)) {
    const bool digit = c >= '0' && c <= '9';
    const bool lower = c >= 'a' && c <= 'z';
    const bool upper = c >= 'A' && c <= 'Z';
    name += digit || lower ? c : upper ? static_cast<char>(c - 'A' + 'a') : '_';
  }
  std::string free = name;
  for (int i = 2; !taken.insert(free).second; ++i) free = name + "_" + std::to_string(i);
  return free;
}

// Appends layers that concatenate the numeric columns with a vector for each categorical column.
Status embed_categories(const Attribute& embedding, const ModelInterface& interface,
                        std::vector<LayerSpec>& layers) {
  const auto* all = std::get_if<int64_t>(&embedding);
  const auto* named = std::get_if<NamedInts>(&embedding);
  if (named != nullptr) {
    Violations violations;
    for (const auto& [name, width] : *named) {
      if (std::ranges::find(interface.categories, name, &CategoricalColumn::name) ==
          interface.categories.end()) {
        violations.add("FIELD_UNKNOWN", "model.mlp.embedding." + name, no_column(name, interface));
      }
    }
    if (!violations.empty()) return violations.to_error();
  }
  std::vector<std::string> parts;
  if (const int64_t numbers = interface.input[0] - std::ssize(interface.categories); numbers > 0) {
    parts.emplace_back("numbers");
    layers.push_back(
        {parts.back(), "Slice", {"input"}, {{"starts", int64_t{0}}, {"ends", numbers}}});
  }
  std::set<std::string> taken;
  for (const CategoricalColumn& column : interface.categories) {
    int64_t width = category_embedding_dim(column.count);
    if (all != nullptr) width = *all;
    if (named != nullptr && named->contains(column.name)) width = named->at(column.name);
    parts.push_back(embedding_name(column.name, taken));
    layers.push_back({parts.back(),
                      "CategoryEmbedding",
                      {"input"},
                      {{"column", column.name}, {"embedding_dim", width}}});
  }
  layers.push_back({"columns", "Concat", parts, {}});
  return {};
}

Layers expand_mlp(const Attributes& parameters, const ModelInterface& interface) {
  const std::string activation = parameters.get_string("activation", "relu");
  const double dropout = parameters.get_float("dropout", 0);
  int number = 0;
  std::vector<LayerSpec> layers;
  // If there are no codes in the input, find_objective reports the error.
  if (const Attribute* embedding = parameters.find(kEmbeddingParameter);
      embedding != nullptr && interface.category_codes) {
    if (Status s = embed_categories(*embedding, interface, layers); !s.ok()) {
      return std::move(s).error();
    }
  }
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

// The activation comes after the pooling. A monotone function commutes with max pooling, in value
// and gradient, and there is only a quarter of the elements after it.
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
  AttributeRule embedding;
  embedding.kind = AttributeRule::Kind::kWidths;
  embedding.name = kEmbeddingParameter;
  embedding.min = 1;
  embedding.max = kChannelsMax;
  embedding.choices = {"auto"};
  return {{"mlp",
           {hidden, activation_rule(),
            real_rule("dropout", false, {.max = 1, .max_excluded = true}), embedding},
           expand_mlp},
          {"lenet5", {}, expand_lenet5}};
}

}  // namespace trainyard
