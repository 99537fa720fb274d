// From a layer list to a forward graph. Names, attributes and wiring are checked first, all layers
// at once; shapes then follow layer by layer and stop at the first that does not fit, because
// everything behind it would only repeat the problem.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/graph/op.h"
#include "src/models/layer_schema.h"
#include "src/models/model_spec.h"

namespace trainyard {

namespace {

constexpr size_t kLayersMax = 4096;
constexpr size_t kNameLengthMax = 63;
// Tensors of the training program itself.
constexpr std::array<std::string_view, 5> kReservedNames = {"input", "target", "loss", "step",
                                                            "learning_rate"};

bool is_layer_name(std::string_view name) {
  if (name.empty() || name.size() > kNameLengthMax || name[0] < 'a' || name[0] > 'z') return false;
  return std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

// A layer whose names, attributes and wiring are known to be good.
struct ResolvedLayer {
  std::string name;
  const LayerRule* rule = nullptr;
  Attributes attributes;            // completed
  std::vector<std::string> inputs;  // names of earlier layers, or "input"
  std::string path;                 // "model.layers[3]" or "model.lenet5"
  std::string where;                // "model.layers[3] 'conv2'"
};

// Names and wiring of all layers; problems are gathered.
class Resolver {
 public:
  explicit Resolver(bool from_preset, std::string preset)
      : from_preset_(from_preset), preset_(std::move(preset)) {}

  Result<std::vector<ResolvedLayer>> resolve(const std::vector<LayerSpec>& layers) {
    if (layers.empty()) {
      return field_error("FIELD_REQUIRED", "model",
                         "is empty; expected exactly one of mlp, lenet5, layers");
    }
    if (layers.size() > kLayersMax) {
      return field_error("FIELD_OUT_OF_RANGE", "model.layers",
                         "has " + std::to_string(layers.size()) + " layers, expected at most " +
                             std::to_string(kLayersMax));
    }
    for (const LayerSpec& layer : layers) {
      if (!layer.name.empty()) later_.insert(layer.name);
    }
    for (size_t i = 0; i < layers.size(); ++i) resolve_layer(layers[i], i);
    check_all_used();
    if (!violations_.empty()) return violations_.to_error();
    return std::move(resolved_);
  }

 private:
  void resolve_layer(const LayerSpec& spec, size_t index) {
    ResolvedLayer layer;
    layer.path = from_preset_ ? "model." + preset_ : "model.layers[" + std::to_string(index) + "]";
    layer.rule = find_layer_rule(spec.op);
    layer.name = spec.name.empty() ? default_name(layer.rule) : spec.name;
    layer.where = layer.path + " " +
                  (spec.name.empty() ? "'" + layer.name + "'" : quoted_value_single(spec.name));
    check_name(spec, layer);
    if (layer.rule == nullptr) {
      refuse_op(spec.op, layer);
    } else {
      check_attributes(*layer.rule, spec.attributes, layer.path, layer.where, violations_);
      resolve_inputs(spec, layer);
    }
    if (violations_.empty()) {
      layer.attributes = complete_attributes(*layer.rule, spec.attributes);
    }
    names_.push_back(layer.name);
    resolved_.push_back(std::move(layer));
  }

  // Layer names in messages stand in single quotes; anything strange in them is escaped.
  static std::string quoted_value_single(const std::string& name) {
    return is_layer_name(name) ? "'" + name + "'" : quoted_value(name);
  }

  // "conv1": the op and a counter, skipping what the user has named so.
  std::string default_name(const LayerRule* rule) {
    const std::string stem(rule == nullptr ? "layer" : rule->field);
    std::string name;
    do {
      name = stem + std::to_string(++counters_[stem]);
    } while (later_.contains(name));
    return name;
  }

  void check_name(const LayerSpec& spec, const ResolvedLayer& layer) {
    const std::string field = layer.path + ".name";
    if (!spec.name.empty() && !is_layer_name(spec.name)) {
      violations_.add("NAME_MALFORMED", field,
                      quoted_value(spec.name) +
                          " is not a layer name, expected a letter, then letters, digits and _, "
                          "lower case, at most 63");
    } else if (std::ranges::find(kReservedNames, spec.name) != kReservedNames.end()) {
      violations_.add("NAME_RESERVED", field,
                      "'" + spec.name + "' is reserved, expected any other name");
    } else if (std::ranges::find(names_, layer.name) != names_.end()) {
      violations_.add("FIELD_DUPLICATE", field,
                      "'" + layer.name + "' is used twice, expected a name of its own");
    }
  }

  void refuse_op(const std::string& op, const ResolvedLayer& layer) {
    std::vector<std::string> known;
    for (const LayerRule& rule : layer_rules()) known.emplace_back(rule.op);
    std::string description = quoted_value(op) + " is not known";
    if (const auto nearest = nearest_name(op, known)) {
      description += ", did you mean '" + *nearest + "'?";
    } else {
      description += ", expected one of";
      for (size_t i = 0; i < known.size(); ++i) description += (i > 0 ? ", " : " ") + known[i];
    }
    violations_.add("FIELD_UNKNOWN", layer.path + ".op", layer.where + ": op", description);
  }

  void resolve_inputs(const LayerSpec& spec, ResolvedLayer& layer) {
    const std::string field = layer.path + ".inputs";
    const std::string where = layer.where + ": inputs";
    layer.inputs = spec.inputs;
    if (layer.inputs.empty()) layer.inputs = {names_.empty() ? "input" : names_.back()};
    const auto count = static_cast<int64_t>(layer.inputs.size());
    if (count != layer.rule->inputs) {
      violations_.add("FIELD_OUT_OF_RANGE", field, where,
                      "names " + std::to_string(count) + ", but " + spec.op + " takes " +
                          std::to_string(layer.rule->inputs));
    }
    for (const std::string& input : layer.inputs) {
      if (input == "input" || std::ranges::find(names_, input) != names_.end()) {
        used_.insert(input);
        continue;
      }
      violations_.add("FIELD_UNKNOWN", field, where, unknown_input(input, layer.name));
    }
  }

  std::string unknown_input(const std::string& input, const std::string& self) const {
    if (input == self) return "'" + input + "' is the layer itself, expected an earlier layer";
    if (later_.contains(input)) {
      return "'" + input + "' comes later, expected an earlier layer or 'input'";
    }
    std::vector<std::string> known = names_;
    known.emplace_back("input");
    std::string text = quoted_value(input) + " is not a layer";
    if (const auto nearest = nearest_name(input, known)) {
      return text + ", did you mean '" + *nearest + "'?";
    }
    return text + ", expected an earlier layer or 'input'";
  }

  void check_all_used() {
    // With wrong wiring every layer behind the mistake would look unused.
    if (!violations_.empty()) return;
    for (size_t i = 0; i + 1 < resolved_.size(); ++i) {
      const ResolvedLayer& layer = resolved_[i];
      if (used_.contains(layer.name)) continue;
      violations_.add("LAYER_UNUSED", layer.path, layer.where,
                      "nothing reads it; name it in the inputs of a later layer or remove it");
    }
  }

  bool from_preset_;
  std::string preset_;
  Violations violations_;
  std::vector<std::string> names_;
  std::set<std::string> later_;  // every name that the user gives anywhere
  std::set<std::string> used_;
  std::map<std::string, int64_t> counters_;
  std::vector<ResolvedLayer> resolved_;
};

class Builder {
 public:
  Builder(const ModelInterface& interface, const BuildOptions& options)
      : interface_(interface), options_(options) {}

  Result<Model> build(const std::vector<ResolvedLayer>& layers, const std::string& loss) {
    std::vector<int64_t> dims = {options_.batch_size};
    dims.insert(dims.end(), interface_.input.dims().begin(), interface_.input.dims().end());
    const Shape input_shape(std::move(dims));
    if (!input_shape.fits()) {
      return field_error("SHAPE_OUT_OF_RANGE", "recipe.batch_size",
                         "a batch of shape " + input_shape.to_string() + " is too large");
    }
    model_.input = add_tensor("input", input_shape, options_.dtype, Role::kInput, {});
    by_name_["input"] = model_.input;
    for (size_t i = 0; i < layers.size(); ++i) {
      is_last_ = i + 1 == layers.size();
      ASSIGN_OR_RETURN(const TensorId out, add_layer(layers[i]));
      by_name_[layers[i].name] = out;
      model_.output = out;
    }
    if (Status s = check_output(layers.back()); !s.ok()) return std::move(s).error();
    model_.graph.mark_output(model_.output);
    if (options_.training) {
      if (Status s = add_loss(loss); !s.ok()) return std::move(s).error();
    }
    return std::move(model_);
  }

 private:
  const TensorType& type(TensorId id) const { return model_.graph.tensor(id).type; }

  TensorId add_tensor(std::string name, Shape shape, DType dtype, Role role,
                      Initializer initializer) {
    TensorInfo info;
    info.name = std::move(name);
    info.type = {std::move(shape), dtype};
    info.role = role;
    info.initializer = initializer;
    return model_.graph.add_tensor(std::move(info));
  }

  /// PyTorch's default for Linear and Conv: weight and bias uniform in +-1/sqrt(fan_in).
  Result<TensorId> add_parameter(const ResolvedLayer& layer, const char* suffix, Shape shape,
                                 int64_t fan_in) {
    if (!shape.fits()) {
      return shape_error(layer, "its " + std::string(suffix) + " would have shape " +
                                    shape.to_string() + ", more than " +
                                    std::to_string(Shape::kElementsMax) + " elements");
    }
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    return add_tensor(layer.name + "." + suffix, std::move(shape), options_.dtype, Role::kParameter,
                      {Initializer::Kind::kUniform, -bound, bound});
  }

  TensorId add_constant(const ResolvedLayer& layer, const char* suffix, int64_t size, Role role,
                        double value) {
    return add_tensor(layer.name + "." + suffix, Shape{size}, options_.dtype, role,
                      {Initializer::Kind::kConstant, value, 0});
  }

  static Error shape_error(const ResolvedLayer& layer, std::string description) {
    Error e = field_error("SHAPE_MISMATCH", layer.path, description);
    e.message = layer.where + ": " + description;
    return e;
  }

  // What an op's infer refuses, with the layer as the user knows it before it. The op's message is
  // "<node>: <attribute or input>: ..."; the node's name is in `where` already.
  static Error name_layer(const ResolvedLayer& layer, Error e) {
    const std::string prefix = layer.name + ": ";
    if (e.message.starts_with(prefix)) e.message.erase(0, prefix.size());
    std::string field = layer.path;
    if (!e.violations.empty() && layer.rule != nullptr) {
      const std::string& name = e.violations.front().field;
      const auto known = std::ranges::find(layer.rule->attributes, name, &AttributeRule::name);
      if (known != layer.rule->attributes.end()) {
        field += "." + std::string(layer.rule->field) + "." + name;
      }
    }
    e.violations = {{std::move(field), e.message}};
    e.message = layer.where + ": " + e.message;
    return e;
  }

  /// `saved` names the outputs that the op keeps for its backward pass, "" where it keeps none.
  Result<TensorId> add_node(const ResolvedLayer& layer, std::string name, std::string_view op,
                            Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<std::string> saved = {}) {
    std::vector<std::string> outputs = {name};
    for (const std::string& s : saved) outputs.push_back(s.empty() ? "" : name + "." + s);
    auto node = model_.graph.add_node(std::move(name), get_op(op), std::move(attributes),
                                      std::move(inputs), std::move(outputs));
    if (!node.ok()) return name_layer(layer, std::move(node).error());
    return model_.graph.node(*node).outputs[0];
  }

  Result<TensorId> add_layer(const ResolvedLayer& layer) {
    std::vector<TensorId> inputs;
    for (const std::string& name : layer.inputs) inputs.push_back(by_name_.at(name));
    const std::string_view op = layer.rule->op;
    if (op == "Gemm") return add_gemm(layer, inputs[0]);
    if (op == "Conv") return add_conv(layer, inputs[0]);
    if (op == "BatchNormalization") return add_batch_norm(layer, inputs[0]);
    if (op == "Dropout") return add_dropout(layer, inputs[0]);
    if (op == "Reshape") return add_reshape(layer, inputs[0]);
    if (op == "MaxPool" || op == "AveragePool" || op == "GlobalAveragePool") {
      if (Status s = need_image(layer, inputs[0]); !s.ok()) return std::move(s).error();
    }
    return add_node(layer, layer.name, op, layer.attributes, std::move(inputs));
  }

  Status need_image(const ResolvedLayer& layer, TensorId x) const {
    if (type(x).shape.rank() == 4) return {};
    return shape_error(layer,
                       "needs images [N, C, H, W], but its input is " + type(x).shape.to_string());
  }

  Result<TensorId> add_gemm(const ResolvedLayer& layer, TensorId x) {
    if (type(x).shape.rank() > 2) {
      ASSIGN_OR_RETURN(
          x, add_node(layer, layer.name + "/flatten", "Flatten", {{"axis", int64_t{1}}}, {x}));
    }
    int64_t units = layer.attributes.get_int("units", 0);
    if (units == 0) {
      if (!is_last_) {
        Error e = field_error("FIELD_REQUIRED", layer.path + ".gemm.units",
                              "is required for every layer but the last: a whole number in "
                              "1..1048576");
        e.message = layer.where + ": units: " + e.violations[0].description;
        return e;
      }
      units = interface_.outputs;
    }
    const int64_t features = type(x).shape[1];
    ASSIGN_OR_RETURN(const TensorId w,
                     add_parameter(layer, "weight", Shape{units, features}, features));
    TensorId b = kNoTensor;
    if (layer.attributes.get_int("bias", 1) != 0) {
      ASSIGN_OR_RETURN(b, add_parameter(layer, "bias", Shape{units}, features));
    }
    return add_node(layer, layer.name, "Gemm", {{"transB", int64_t{1}}}, with_bias(x, w, b));
  }

  Result<TensorId> add_conv(const ResolvedLayer& layer, TensorId x) {
    if (Status s = need_image(layer, x); !s.ok()) return std::move(s).error();
    const int64_t channels = type(x).shape[1];
    const int64_t out_channels = layer.attributes.get_int("out_channels", 0);
    const std::vector<int64_t> kernel = layer.attributes.get_ints("kernel_shape", {});
    const int64_t fan_in = channels * kernel[0] * kernel[1];
    ASSIGN_OR_RETURN(const TensorId w,
                     add_parameter(layer, "weight",
                                   Shape{out_channels, channels, kernel[0], kernel[1]}, fan_in));
    TensorId b = kNoTensor;
    if (layer.attributes.get_int("bias", 1) != 0) {
      ASSIGN_OR_RETURN(b, add_parameter(layer, "bias", Shape{out_channels}, fan_in));
    }
    Attributes attributes;
    for (const char* name : {"kernel_shape", "strides", "pads"}) {
      attributes.set(name, layer.attributes.get_ints(name, {}));
    }
    return add_node(layer, layer.name, "Conv", std::move(attributes), with_bias(x, w, b));
  }

  // A left-out bias is a missing last input, not kNoTensor in the middle.
  static std::vector<TensorId> with_bias(TensorId x, TensorId w, TensorId b) {
    return b == kNoTensor ? std::vector<TensorId>{x, w} : std::vector<TensorId>{x, w, b};
  }

  Result<TensorId> add_batch_norm(const ResolvedLayer& layer, TensorId x) {
    const int64_t channels = type(x).shape[1];
    const TensorId scale = add_constant(layer, "weight", channels, Role::kParameter, 1);
    const TensorId bias = add_constant(layer, "bias", channels, Role::kParameter, 0);
    const TensorId mean = add_constant(layer, "running_mean", channels, Role::kState, 0);
    const TensorId var = add_constant(layer, "running_var", channels, Role::kState, 1);
    Attributes attributes = layer.attributes;
    attributes.set("training_mode", int64_t{options_.training ? 1 : 0});
    return add_node(layer, layer.name, "BatchNormalization", std::move(attributes),
                    {x, scale, bias, mean, var},
                    options_.training ? std::vector<std::string>{"saved_mean", "saved_inv_std"}
                                      : std::vector<std::string>{"", ""});
  }

  // Outside training dropout is the identity, and the identity is no node.
  Result<TensorId> add_dropout(const ResolvedLayer& layer, TensorId x) {
    const double ratio = layer.attributes.get_float("ratio", 0);
    if (!options_.training || ratio == 0) return x;
    if (model_.step == kNoTensor) {
      model_.step = add_tensor("step", Shape{1}, DType::kI64, Role::kInput, {});
    }
    return add_node(layer, layer.name, "Dropout",
                    {{"ratio", ratio},
                     {"seed", static_cast<int64_t>(options_.seed)},
                     {"stream", int64_t{stream_of(layer.name)}}},
                    {x, model_.step});
  }

  Result<TensorId> add_reshape(const ResolvedLayer& layer, TensorId x) {
    const std::vector<int64_t> wanted = layer.attributes.get_ints("shape", {});
    const int64_t elements = type(x).shape.elements() / options_.batch_size;
    int64_t known = 1;
    int64_t open = 0;
    for (const int64_t d : wanted) {
      if (d == 0 || (d < 0 && ++open > 1)) {
        return shape_error(layer, "shape: " + Shape(wanted).to_string() +
                                      " is not possible, expected sizes of at least 1 and at most "
                                      "one -1");
      }
      if (d > 0) known = known > elements ? known : known * d;  // past `elements` it cannot fit
    }
    std::vector<int64_t> dims = {options_.batch_size};
    dims.insert(dims.end(), wanted.begin(), wanted.end());
    if (open == 1 && elements % known == 0) {
      std::ranges::replace(dims, -1, elements / known);
      known = elements;
    }
    if (known != elements) {
      return shape_error(layer, "shape: " + Shape(wanted).to_string() + " does not hold the " +
                                    std::to_string(elements) + " elements of one sample " +
                                    type(x).shape.to_string());
    }
    return add_node(layer, layer.name, "Reshape", {{"shape", std::move(dims)}}, {x});
  }

  Status check_output(const ResolvedLayer& last) const {
    const Shape expected{options_.batch_size, interface_.outputs};
    if (type(model_.output).shape == expected) return {};
    return shape_error(last, "its output is " + type(model_.output).shape.to_string() +
                                 ", but the dataset asks for [N, " +
                                 std::to_string(interface_.outputs) + "]" +
                                 (interface_.classification ? " (one score per class)" : "") +
                                 "; end with a gemm layer without units");
  }

  Status add_loss(const std::string& loss) {
    const bool xent = loss == "SoftmaxCrossEntropyLoss";
    const Shape shape =
        xent ? Shape{options_.batch_size} : Shape{options_.batch_size, interface_.outputs};
    model_.target =
        add_tensor("target", shape, xent ? DType::kI32 : options_.dtype, Role::kInput, {});
    std::vector<std::string> outputs = {"loss"};
    if (xent) outputs.emplace_back("loss.prob");  // for the backward pass
    auto node = model_.graph.add_node("loss", get_op(loss), {}, {model_.output, model_.target},
                                      std::move(outputs));
    if (!node.ok()) {
      Error e = std::move(node).error();
      e.violations = {{"model.loss", e.message}};
      return e;
    }
    model_.loss = model_.graph.node(*node).outputs[0];
    model_.graph.mark_output(model_.loss);
    return {};
  }

  const ModelInterface& interface_;
  const BuildOptions& options_;
  Model model_;
  std::map<std::string, TensorId> by_name_;
  bool is_last_ = false;
};

Result<std::string> choose_loss(const ModelSpec& spec, const ModelInterface& interface) {
  const std::string fitting =
      interface.classification ? "SoftmaxCrossEntropyLoss" : "MeanSquaredError";
  if (spec.loss.empty() || spec.loss == fitting) return fitting;
  if (spec.loss != "SoftmaxCrossEntropyLoss" && spec.loss != "MeanSquaredError") {
    return field_error("FIELD_UNSUPPORTED", "model.loss",
                       quoted_value(spec.loss) +
                           " is not known, expected softmax_cross_entropy or mean_squared_error");
  }
  return field_error(
      "FIELD_UNSUPPORTED", "model.loss",
      interface.classification
          ? "mean_squared_error does not fit a target of classes, expected softmax_cross_entropy"
          : "softmax_cross_entropy does not fit a numeric target, expected mean_squared_error");
}

}  // namespace

Result<Model> build_model(const ModelSpec& spec, const ModelInterface& interface,
                          const BuildOptions& options) {
  TRAINYARD_CHECK(options.batch_size >= 1, "batch_size must be positive");
  if (!spec.preset.empty() && !spec.layers.empty()) {
    return field_error("FIELD_DUPLICATE", "model",
                       "names several architectures; expected exactly one of mlp, lenet5, layers");
  }
  if (interface.outputs < (interface.classification ? 2 : 1)) {
    return field_error(
        "DATASET_INVALID", "dataset",
        "the target has " + std::to_string(interface.outputs) + " classes, expected at least 2");
  }
  std::vector<LayerSpec> layers = spec.layers;
  if (!spec.preset.empty()) {
    ASSIGN_OR_RETURN(layers, expand_preset(spec, interface));
  }
  ASSIGN_OR_RETURN(const std::string loss, choose_loss(spec, interface));
  ASSIGN_OR_RETURN(const std::vector<ResolvedLayer> resolved,
                   Resolver(!spec.preset.empty(), spec.preset).resolve(layers));
  return Builder(interface, options).build(resolved, loss);
}

}  // namespace trainyard
